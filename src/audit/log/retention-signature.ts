import type { Instant } from '../../lib/instant.js';
import { type EventKeys, type PublicKey } from '../events/event-keys.js';
import { isSignedBy } from './signing-key.js';

/**
 * How long the events of an organization are kept. The signature prevents a deletion of events by a change of the
 * table.
 */
export interface SignedRetention {
  org_id: string;
  retention_months: number | null;
  retention_at: Instant | null;
  retention_key_id: string | null;
  retention_signature: Buffer | null;
}

export function signRetention(
  keys: EventKeys,
  orgId: string,
  months: number | null,
  at: Instant,
): SignedRetention {
  return {
    org_id: orgId,
    retention_months: months,
    retention_at: at,
    retention_key_id: keys.current.id,
    retention_signature: keys.sign(textOf(orgId, months, at)),
  };
}

/** Null months need no signature: they delete nothing. */
export function isRetentionTrusted(retention: SignedRetention, known: readonly PublicKey[]): boolean {
  const { org_id, retention_months, retention_at, retention_key_id, retention_signature } = retention;
  if (retention_months === null) return true;
  const key = known.find(({ id }) => id === retention_key_id);
  if (!key || retention_at === null || retention_signature === null) return false;
  return isSignedBy(key, textOf(org_id, retention_months, retention_at), retention_signature);
}

function textOf(orgId: string, months: number | null, at: Instant): string {
  return `sandkeep event retention 1\norg ${orgId}\nmonths ${months ?? 'forever'}\nat ${at}\n`;
}
