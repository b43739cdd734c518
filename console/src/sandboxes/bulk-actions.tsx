import { useState } from 'preact/hooks';
import { adviceFor, sentence } from '../lib/advice';
import { Problem } from '../lib/api';
import type { SandboxResponse } from '../lib/api-types';
import { confirm } from '../parts/confirm';
import { DELETE_CONSEQUENCE, VERBS, type Verb } from './operations';

type Subject = Pick<SandboxResponse, 'id' | 'name'>;

interface Result extends Subject {
  text: string;
  isFault: boolean;
}

const AT_ONCE = 4;
const OFFERED: readonly Verb[] = ['start', 'stop', 'restart', 'delete'];
const INVERSE: Partial<Record<Verb, Verb>> = { start: 'stop', stop: 'start' };

/** Changes of many sandboxes, with the result of each. */
export function BulkActions({ chosen, done }: { chosen: readonly SandboxResponse[]; done: () => void }) {
  const [results, setResults] = useState<readonly Result[]>([]);
  const [inverse, setInverse] = useState<Verb>();
  const [isBusy, setBusy] = useState(false);
  const act = async (verb: Verb, subjects: readonly Subject[] = chosen) => {
    if (verb === 'delete') {
      const isConfirmed = await confirm({
        title: subjects.length === 1 ? 'Delete this sandbox?' : `Delete ${subjects.length} sandboxes?`,
        names: subjects.map(({ name }) => name),
        consequence: DELETE_CONSEQUENCE,
        action: 'Delete',
      });
      if (!isConfirmed) return;
    }
    setBusy(true);
    setResults([]);
    setInverse(INVERSE[verb]);
    const queue = [...subjects];
    const work = async () => {
      for (let next = queue.shift(); next !== undefined; next = queue.shift()) {
        const result = await resultOf(verb, next);
        setResults((before) => [...before, result]);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    setBusy(false);
    done();
  };
  return (
    <>
      {chosen.length > 0 && (
        <div class="actions bulk" role="group" aria-label="Selected sandboxes">
          <b>{chosen.length} selected</b>
          {OFFERED.map((verb) => (
            <button
              key={verb}
              type="button"
              class={verb === 'delete' ? 'danger' : ''}
              disabled={isBusy}
              onClick={() => void act(verb)}
            >
              {VERBS[verb].title}
            </button>
          ))}
        </div>
      )}
      {results.length > 0 && (
        <section class="panel" aria-label="Results" aria-live="polite">
          <ul class="results">
            {results.map(({ id, name, text, isFault }) => (
              <li key={id} class={isFault ? 'fault-message' : ''}>
                <b>{name}</b>
                {isFault ? ': ' : ' '}
                {text}
              </li>
            ))}
          </ul>
          <p class="actions">
            {inverse !== undefined && results.some(({ isFault }) => !isFault) && (
              <button
                type="button"
                disabled={isBusy}
                onClick={() =>
                  void act(
                    inverse,
                    results.filter(({ isFault }) => !isFault),
                  )
                }
              >
                Undo: {VERBS[inverse].title.toLowerCase()} them
              </button>
            )}
            <button type="button" onClick={() => setResults([])}>
              Close the results
            </button>
          </p>
        </section>
      )}
    </>
  );
}

async function resultOf(verb: Verb, { id, name }: Subject): Promise<Result> {
  try {
    await VERBS[verb].run(id);
    return { id, name, text: VERBS[verb].done, isFault: false };
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    const request = error.requestId === null ? '' : ` Request ${error.requestId}.`;
    return { id, name, text: `${sentence(error.message)} ${adviceFor(error)}${request}`, isFault: true };
  }
}
