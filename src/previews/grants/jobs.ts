import type { Context } from '../../context.js';
import { addMillis } from '../../lib/instant.js';
import { deleteEnded } from './queries.js';

/** For so long the holder of a link is told that it has ended. */
const KEEP_MS = 7 * 24 * 3_600_000;
const BATCH = 1_000;

export async function deleteEndedPreviews({ pool, now }: Context, signal: AbortSignal): Promise<void> {
  let count: number;
  do count = await deleteEnded(pool, addMillis(now(), -KEEP_MS), BATCH);
  while (count === BATCH && !signal.aborted);
}
