import type { Shared } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { shortInstant, type Instant } from '../../lib/instant.js';
import type { PreviewRow } from './queries.js';
import type { PreviewResponse } from './schema.js';

type Origins = NonNullable<Shared['previews']>;

/** Throws an ApiError where this process serves no previews. */
export function originsOf({ previews }: Pick<Shared, 'previews'>): Origins {
  if (!previews) {
    throw new ApiError('not_supported', 'this service has no previews: the operator sets --preview-host');
  }
  return previews;
}

export function presentPreview(row: PreviewRow, origins: Origins, at: Instant): PreviewResponse {
  const { id, sandbox_id, port, path, label, host_form: host, is_public, created_by, revoked_at } = row;
  const ended = row.expires_at > at ? 'open' : 'expired';
  return {
    id,
    sandbox_id,
    port,
    path,
    origin: origins.originOf({ port, sandboxId: sandbox_id }),
    label,
    host,
    public: is_public,
    status: revoked_at === null ? ended : 'revoked',
    created_by,
    created_at: shortInstant(row.created_at),
    expires_at: shortInstant(row.expires_at),
    revoked_at: revoked_at && shortInstant(revoked_at),
    last_used_at: row.last_used_at && shortInstant(row.last_used_at),
  };
}
