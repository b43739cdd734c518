import type { WebhookResponse } from '../lib/api-types';
import { Badge } from '../parts/badge';
import { Time } from '../parts/time';

const REASONS: Record<NonNullable<WebhookResponse['disabled_reason']>, string> = {
  failing: 'Every attempt failed for days.',
  gone: 'The receiver answered 410: it is gone.',
  secret_lost: 'The service cannot read the secret. Rotate it.',
};

export function WebhookStatus({ of }: { of: WebhookResponse }) {
  const { status, disabled_reason, failing_since } = of;
  return (
    <>
      <Badge status={status} />
      {disabled_reason !== null && <small>{REASONS[disabled_reason]}</small>}
      {failing_since !== null && (
        <small>
          Every attempt has failed since <Time at={failing_since} />.
        </small>
      )}
    </>
  );
}
