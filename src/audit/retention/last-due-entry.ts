import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import { linkOf, type LogPosition } from '../events/hash-chain.js';
import { readLinks } from '../log/retention-queries.js';
import { BrokenLog } from '../log/verify-head.js';

const BATCH = 5_000;

/**
 * The last entry of those with only earlier events. Throws BrokenLog: the new base must not hide removed entries or
 * changed times.
 */
export async function findLastDue(
  tx: Sql,
  orgId: string,
  base: LogPosition,
  before: Instant,
  upTo: number,
): Promise<LogPosition> {
  let position = base;
  while (position.seq < upTo) {
    const entries = await readLinks(tx, orgId, { after: position.seq, upTo, limit: BATCH });
    if (entries.length === 0) throw new BrokenLog(`entry ${position.seq + 1} is missing`);
    for (const entry of entries) {
      const { seq, occurred_at, link } = entry;
      if (seq !== position.seq + 1) throw new BrokenLog(`entry ${position.seq + 1} is missing`);
      if (!linkOf(position.link, entry).equals(link)) {
        throw new BrokenLog(`the link of entry ${seq} does not follow entry ${position.seq}`);
      }
      if (occurred_at >= before) return position;
      position = { seq, link };
    }
  }
  return position;
}
