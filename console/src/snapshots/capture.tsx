import { call } from '../lib/api';
import type { SandboxResponse } from '../lib/api-types';
import { parseLabels } from '../lib/labels';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';

/** Requests a snapshot of a sandbox. The page of the snapshots shows its progress. */
export function Capture(props: {
  of: SandboxResponse;
  close: () => void;
  requested: (name: string) => void;
}) {
  const { send, problem, isBusy } = useChange();
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    const operation = await send(() =>
      call('POST /v1/snapshots', {
        body: {
          kind: 'disk',
          sandbox_id: props.of.id,
          name: text('name'),
          labels: parseLabels(text('labels')),
        },
      }),
    );
    if (operation !== undefined) props.requested(operation.name);
  };
  return (
    <Dialog title="Create a snapshot" close={props.close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <p>The snapshot has the disk of the sandbox. A running one is paused until its disk is copied.</p>
        <Field
          label="Name (required)"
          hint="1 to 128 of A-Z a-z 0-9 . - _, beginning with a letter or digit."
        >
          <input name="name" required autofocus spellcheck={false} />
        </Field>
        <Field label="Labels">
          <input name="labels" placeholder="team=ml, env=prod" spellcheck={false} />
        </Field>
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Create
          </button>
        </p>
      </form>
    </Dialog>
  );
}
