import type { Pool } from '../../db/pool.js';
import { addMillis, type Instant } from '../../lib/instant.js';
import { deleteTraces, TRACE_KEPT_MS } from './trace-queries.js';

const BATCH = 5_000;

export async function deleteOldTraces(
  { pool, now }: { pool: Pool; now: () => Instant },
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted && (await deleteTraces(pool, addMillis(now(), -TRACE_KEPT_MS), BATCH)) === BATCH);
}
