import type { WebhookWithSecret } from '../lib/api-types';
import { CodeLines } from '../parts/copy';
import { SecretDialog } from '../parts/secret';

const VERIFY = `import { Webhook } from 'standardwebhooks';

// Throws unless the request is from this service. The body must be the bytes as they came.
new Webhook(process.env.WEBHOOK_SECRET).verify(body, request.headers);`;

export function WebhookSecret({ of, close }: { of: WebhookWithSecret; close: () => void }) {
  return (
    <SecretDialog title="The secret of the webhook" of="secret" secret={of.secret} close={close}>
      <p>The receiver verifies the signature of each request with it:</p>
      <CodeLines text={VERIFY} of="lines" />
    </SecretDialog>
  );
}
