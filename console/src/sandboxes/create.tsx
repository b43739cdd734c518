import { useState } from 'preact/hooks';
import { useLocation } from 'wouter-preact';
import { announce } from '../lib/announce';
import { call, Problem } from '../lib/api';
import type { CreateSandboxRequest } from '../lib/api-types';
import { useUrlState } from '../lib/url-state';
import { useResource } from '../lib/use-resource';
import { CodeLines } from '../parts/copy';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';
import { CreateForm } from './create-form';
import { duplicateOf } from './duplicate';
import { equalLines } from './equal-lines';

const FIRST = JSON.stringify({ name: '', image: { type: 'oci', reference: 'python:3.12' } }, null, 2);

/** Another sandbox, or with `from` in the address one like that. */
export function Create() {
  const url = useUrlState();
  const from = url.get('from');
  const original = useResource(`original:${from}`, async (signal) =>
    from === ''
      ? undefined
      : duplicateOf(await call('GET /v1/sandboxes/{sandbox_id}', { path: { sandbox_id: from }, signal })),
  );
  const close = () => url.set({ create: undefined, from: undefined });
  if (from === '') return <CreateDialog first={FIRST} left={[]} close={close} />;
  if (original.data !== undefined) {
    const { body, left } = original.data;
    return <CreateDialog first={JSON.stringify(body, null, 2)} left={left} close={close} />;
  }
  return original.problem === undefined ? null : (
    <Dialog title="Create a sandbox" close={close}>
      <ErrorPanel problem={original.problem} retry={original.reload} />
    </Dialog>
  );
}

interface CreateDialogProps {
  /** The body as JSON. */
  first: string;
  /** The parts that a duplicate lacks. */
  left: readonly string[];
  close: () => void;
}

/** One request in three views: a form, its JSON, and the lines that send the same. */
function CreateDialog({ first, left, close }: CreateDialogProps) {
  const url = useUrlState();
  const [, go] = useLocation();
  const [json, setJson] = useState(first);
  const [isStarted, setStarted] = useState(true);
  const [problem, setProblem] = useState<Problem>();
  const [isBusy, setBusy] = useState(false);
  const view = url.get('create');
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
      {left.length > 0 && <p class="panel">This copy does not have: {left.join(', ')}.</p>}
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

type Body = Record<string, unknown>;

function parse(json: string): Body | undefined {
  try {
    const value: unknown = JSON.parse(json);
    return typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as Body) : undefined;
  } catch {
    return undefined;
  }
}
