import { shortInstant } from '../../lib/instant.js';
import type { PasskeyRow } from './queries.js';
import type { PasskeyResponse } from './schema.js';

export function presentPasskey(
  { id, name, created_at, used_at }: PasskeyRow,
  isCurrent: boolean,
): PasskeyResponse {
  return {
    id,
    name,
    created_at: shortInstant(created_at),
    used_at: used_at && shortInstant(used_at),
    is_current: isCurrent,
  };
}
