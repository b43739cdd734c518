import { useState } from 'preact/hooks';
import { call } from '../lib/api';
import type { WebhookWithSecret } from '../lib/api-types';
import { useChange } from '../lib/use-change';
import { Dialog } from '../parts/dialog';
import { ErrorPanel } from '../parts/error-panel';
import { Overlap } from '../parts/overlap';

export function RotateSecret(props: {
  webhookId: string;
  close: () => void;
  rotated: (webhook: WebhookWithSecret) => void;
}) {
  const [overlap, setOverlap] = useState(86_400);
  const { send, problem, isBusy } = useChange();
  const submit = async (event: Event) => {
    event.preventDefault();
    const webhook = await send(() =>
      call('POST /v1/webhooks/{webhook_id}/rotate-secret', {
        path: { webhook_id: props.webhookId },
        body: { overlap_secs: overlap },
      }),
    );
    if (webhook !== undefined) props.rotated(webhook);
  };
  return (
    <Dialog title="Rotate the secret" close={props.close}>
      <form class="form" onSubmit={(event) => void submit(event)}>
        <p>The webhook gets a new secret. The previous one also signs until the overlap ends.</p>
        <Overlap value={overlap} change={setOverlap} />
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
