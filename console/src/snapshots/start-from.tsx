import { call } from '../lib/api';
import type { SandboxResponse, SnapshotResponse } from '../lib/api-types';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';

export function StartFrom(props: {
  of: SnapshotResponse;
  close: () => void;
  started: (sandbox: SandboxResponse) => void;
}) {
  const { send, problem, isBusy } = useChange();
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    const body = {
      name: text('name'),
      image: { type: 'disk_snapshot' as const, id: props.of.id },
      resources: { vcpus: Number(text('vcpus')), memory_mib: Number(text('memory')) },
      // A key that is limited to the labels of the snapshot can see the sandbox too.
      labels: props.of.labels,
    };
    const sandbox = await send(() => call('POST /v1/sandboxes', { query: { start: true }, body }));
    if (sandbox !== undefined) props.started(sandbox);
  };
  return (
    <Dialog title="Start a sandbox from the snapshot" close={props.close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <Field
          label="Name (required)"
          hint="1 to 128 of A-Z a-z 0-9 . - _, beginning with a letter or digit."
        >
          <input name="name" required autofocus spellcheck={false} />
        </Field>
        <Field label="Virtual CPUs">
          <input name="vcpus" type="number" min={0} required defaultValue="1" />
        </Field>
        <Field label="Memory in MiB">
          <input name="memory" type="number" min={1} required defaultValue="512" />
        </Field>
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Start
          </button>
        </p>
      </form>
    </Dialog>
  );
}
