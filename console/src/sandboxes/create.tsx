import { useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { announce } from '../lib/announce';
import { call, Problem } from '../lib/api';
import type { CreateSandboxRequest } from '../lib/api-types';
import { useUrlState } from '../lib/url-state';
import { CodeLines } from '../parts/copy';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';
import { CreateForm } from './create-form';
import { equalLines } from './equal-lines';

const FIRST = JSON.stringify({ name: '', image: { type: 'oci', reference: 'python:3.12' } }, null, 2);

/** One request in three views: a form, its JSON, and the lines that send the same. */
export function Create() {
  const url = useUrlState();
  const [, go] = useLocation();
  const [json, setJson] = useState(FIRST);
  const [isStarted, setStarted] = useState(true);
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  const view = url.get('create');
  const close = () => url.set({ create: undefined });
  const parsed = parse(json);

  const submit = async (event: Event) => {
    event.preventDefault();
    if (parsed === undefined) return;
    setBusy(true);
    setProblem(undefined);
    try {
      const { id, name } = await call('POST /v1/sandboxes', {
        query: { start: isStarted },
        body: parsed as CreateSandboxRequest,
      });
      announce(`Created ${name}.`);
      go(`/sandboxes/${id}`);
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      setProblem(error);
    } finally {
      setBusy(false);
    }
  };

  return (
    <Dialog title="Create a sandbox" close={close} wide>
      <div class="choices" role="group" aria-label="View">
        {(['form', 'json', 'lines'] as const).map((name) => (
          <button
            key={name}
            type="button"
            aria-pressed={view === name}
            onClick={() => url.set({ create: name }, { replace: true })}
          >
            {{ form: 'Form', json: 'JSON', lines: 'curl, CLI, SDK' }[name]}
          </button>
        ))}
      </div>
      <form class="form" onSubmit={(event) => void submit(event)}>
        {parsed === undefined && <p class="fault-message">This is not JSON of an object yet.</p>}
        {view === 'json' || parsed === undefined ? (
          <Field label="The body of the request">
            <textarea
              rows={16}
              spellcheck={false}
              value={json}
              onInput={(event) => setJson(event.currentTarget.value)}
            />
          </Field>
        ) : view === 'lines' ? (
          equalLines(parsed, isStarted).map(([of, text]) => (
            <section key={of}>
              <h3>{of}</h3>
              <CodeLines text={text} of={`${of} lines`} />
            </section>
          ))
        ) : (
          <CreateForm value={parsed} change={(value) => setJson(JSON.stringify(value, null, 2))} />
        )}
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy || parsed === undefined}>
            Create
          </button>
          <label>
            <input
              type="checkbox"
              checked={isStarted}
              onChange={({ currentTarget }) => setStarted(currentTarget.checked)}
            />{' '}
            and start it
          </label>
        </p>
      </form>
    </Dialog>
  );
}

export type Body = Record<string, unknown>;

function parse(json: string): Body | undefined {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Body) : undefined;
  } catch {
    return undefined;
  }
}
