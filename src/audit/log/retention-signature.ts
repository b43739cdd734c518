import type { Instant } from '../../lib/instant.js';
import { type EventKeys, type PublicKey } from '../events/event-keys.js';
import { isSignedBy } from './signing-key.js';

/** How long the events of an organization are kept, as it is written down: whoever can change that could have events dropped. */
export interface KeptFor {
  org_id: string;
  retention_months: number | null;
  retention_at: Instant | null;
  retention_key_id: string | null;
  retention_signature: Buffer | null;
}

export function signKeptFor(keys: EventKeys, orgId: string, months: number | null, at: Instant): KeptFor {
  return {
    ...{ org_id: orgId, retention_months: months, retention_at: at },
    retention_key_id: keys.current.id,
    retention_signature: keys.sign(textOf(orgId, months, at)),
  };
}

/** Did one of these keys sign it? For ever needs nobody: it loses nothing. */
export function isTrusted(kept: KeptFor, known: readonly PublicKey[]): boolean {
  const { org_id, retention_months, retention_at, retention_key_id, retention_signature } = kept;
  if (retention_months === null) return true;
  const key = known.find(({ id }) => id === retention_key_id);
  if (!key || retention_at === null || retention_signature === null) return false;
  return isSignedBy(key, textOf(org_id, retention_months, retention_at), retention_signature);
}

function textOf(orgId: string, months: number | null, at: Instant): string {
  return `sandkeep event retention 1\norg ${orgId}\nmonths ${months ?? 'forever'}\nat ${at}\n`;
}
