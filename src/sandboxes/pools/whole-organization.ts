import { isNarrowed } from '../../access/access.js';
import type { Caller } from '../../access/caller.js';
import { ApiError } from '../../http/errors.js';

/** Sandboxes of a pool have no labels of a caller, so they are not among those of a narrowed key. */
export function refuseNarrowed({ access }: Caller): void {
  if (!isNarrowed(access)) return;
  const message = 'a pool serves the whole organization, and the key is narrowed to labels: use another key';
  throw new ApiError('label_not_allowed', message, { labels: access.labels });
}
