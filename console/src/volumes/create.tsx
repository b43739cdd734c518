import { call } from '../lib/api';
import type { VolumeResponse } from '../lib/api-types';
import { parseLabels } from '../lib/labels';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';
import { capOf } from './cap';

export function CreateVolume(props: { close: () => void; created: (volume: VolumeResponse) => void }) {
  const { send, problem, isBusy } = useChange();
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    const volume = await send(() =>
      call('POST /v1/volumes', {
        body: {
          name: text('name'),
          capacity_gib: capOf(text('capacity')),
          labels: parseLabels(text('labels')),
        },
      }),
    );
    if (volume !== undefined) props.created(volume);
  };
  return (
    <Dialog title="Create a volume" close={props.close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <Field label="Name (required)" hint="1 to 63 lower-case letters, digits and single hyphens.">
          <input name="name" required autofocus spellcheck={false} />
        </Field>
        <Field label="Cap in GiB" hint="Without a number it has no cap.">
          <input name="capacity" type="number" min={1} />
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
