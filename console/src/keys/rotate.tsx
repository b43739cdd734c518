import { useState } from 'preact/hooks';
import { call } from '../lib/api';
import type { ApiKeyResponse } from '../lib/api-types';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Overlap } from '../parts/overlap';
import type { Issued } from './new-secret';

/** A new secret for a key, and the time for which the previous one still works. */
export function Rotate(props: { of: ApiKeyResponse; close: () => void; rotated: (issued: Issued) => void }) {
  const { id, name } = props.of;
  const [overlap, setOverlap] = useState(3600);
  const { send, problem, isBusy } = useChange();
  const submit = async (event: Event) => {
    event.preventDefault();
    const key = await send(() =>
      call('POST /v1/keys/{id}/rotate', { path: { id }, body: { overlap_secs: overlap } }),
    );
    if (key !== undefined) props.rotated({ key, isNew: false });
  };
  return (
    <Dialog title={`Rotate ${name}`} close={props.close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <p>The key gets a new secret. The previous one works until the overlap ends.</p>
        <Overlap value={overlap} change={setOverlap} />
        <p>After a leak choose no overlap.</p>
        {problem !== undefined && <ErrorPanel problem={problem} />}
        <p class="actions">
          <button type="submit" class="primary" disabled={isBusy}>
            Rotate
          </button>
        </p>
      </form>
    </Dialog>
  );
}
