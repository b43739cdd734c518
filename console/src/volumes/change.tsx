import { call } from '../lib/api';
import type { VolumeResponse } from '../lib/api-types';
import { formatLabels, parseLabels } from '../lib/labels';
import { submitted } from '../lib/submitted';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Field } from '../parts/field';
import { capOf } from './cap';

const GIB = 1024 ** 3;

export function ChangeVolume(props: { of: VolumeResponse; close: () => void; changed: () => void }) {
  const { id, capacity_bytes, labels } = props.of;
  const { send, problem, isBusy } = useChange();
  const submit = async (event: SubmitEvent) => {
    const text = submitted(event);
    const body = { capacity_gib: capOf(text('capacity')), labels: parseLabels(text('labels')) };
    const answer = await send(() => call('PATCH /v1/volumes/{id}', { path: { id }, body }));
    if (answer !== undefined) props.changed();
  };
  return (
    <Dialog title="Change the volume" close={props.close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <Field label="Cap in GiB" hint="Without a number it has no cap.">
          <input
            name="capacity"
            type="number"
            min={1}
            autofocus
            defaultValue={capacity_bytes == null ? '' : String(capacity_bytes / GIB)}
          />
        </Field>
        <Field label="Labels">
          <input name="labels" spellcheck={false} defaultValue={formatLabels(labels)} />
        </Field>
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Save
          </button>
        </p>
      </form>
    </Dialog>
  );
}
