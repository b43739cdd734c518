import { useState } from 'preact/hooks';
import { call } from '../lib/api';
import { useChange } from '../lib/use-change';
import { CodeLines } from '../parts/copy';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';

const LIFETIMES = [
  [900, '15 minutes'],
  [3600, 'an hour'],
  [86_400, 'a day'],
  [604_800, 'a week'],
  [2_592_000, '30 days'],
] as const;

/** Asks for a port, and opens it in a new tab. The link is shown once, and is gone when the dialog closes. */
export function OpenPort(props: { sandboxId: string; close: () => void; opened: () => void }) {
  const [port, setPort] = useState('');
  const [lifetime, setLifetime] = useState(3600);
  const [link, setLink] = useState<string>();
  const { send, problem, isBusy } = useChange();
  const submit = async (event: Event) => {
    event.preventDefault();
    const made = await send(() =>
      call('POST /v1/sandboxes/{sandbox_id}/previews', {
        path: { sandbox_id: props.sandboxId },
        body: { port: Number(port), ttl_secs: lifetime },
      }),
    );
    if (made?.url == null) return;
    props.opened();
    setLink(made.url);
    // The page of the sandbox gets no hold on this one. Where the browser refuses the tab, the link is in the dialog.
    window.open(made.url, '_blank', 'noopener');
  };
  if (link !== undefined) {
    return (
      <Dialog title={`Port ${port} is open`} close={props.close} wide>
        <p>
          It opens in a new tab. Whoever has this link can use the port until the preview ends. The link is
          shown only once.
        </p>
        <CodeLines text={link} of="link" />
        <p class="actions">
          <a class="button" href={link} target="_blank" rel="noopener noreferrer">
            Open again
          </a>
          <button type="button" onClick={props.close}>
            Done
          </button>
        </p>
      </Dialog>
    );
  }
  return (
    <Dialog title="Open port" close={props.close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <Field label="Port" hint="Of a server in the sandbox, such as 3000.">
          <input
            type="number"
            min="1"
            max="65535"
            required
            value={port}
            onInput={({ currentTarget }) => setPort(currentTarget.value)}
          />
        </Field>
        <Field label="Lifetime">
          <select
            value={String(lifetime)}
            onChange={({ currentTarget }) => setLifetime(Number(currentTarget.value))}
          >
            {LIFETIMES.map(([seconds, title]) => (
              <option key={seconds} value={String(seconds)}>
                {title}
              </option>
            ))}
          </select>
        </Field>
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Open
          </button>
        </p>
      </form>
    </Dialog>
  );
}
