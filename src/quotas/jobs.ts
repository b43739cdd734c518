import type { Context } from '../context.js';
import { compactCounts, COMPACT_BATCH, orgsToCompact } from './queries.js';

/** Few, because each check reads all rows of an organization. */
const MAX_ROWS = 16;

/** Compacts the rows that count the sandboxes of organizations. */
export async function compactAllCounts({ pool }: Pick<Context, 'pool'>, signal: AbortSignal): Promise<void> {
  for (const orgId of await orgsToCompact(pool, MAX_ROWS)) {
    let compacted = COMPACT_BATCH;
    while (compacted === COMPACT_BATCH && !signal.aborted) compacted = await compactCounts(pool, orgId);
  }
}
