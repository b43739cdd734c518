import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import { linkOf } from '../events/content.js';
import { BrokenLog } from '../log/check-end.js';
import { readLinks } from '../log/retention-queries.js';

const BATCH = 5_000;

/**
 * The last entry of those at the beginning of a log whose events are all older than `before`: what may go with them. Each must follow
 * the one before it, from the place that was signed: what is signed as the beginning now has nothing before it that somebody took
 * out, or whose time he changed. `upTo`: the end of the log. Throws BrokenLog.
 */
export async function walkDue(
  tx: Sql,
  orgId: string,
  signed: { seq: number; link: Buffer },
  before: Instant,
  upTo: number,
): Promise<{ seq: number; link: Buffer }> {
  let place = signed;
  while (place.seq < upTo) {
    const entries = await readLinks(tx, orgId, { after: place.seq, upTo, limit: BATCH });
    if (entries.length === 0) throw new BrokenLog(`entry ${place.seq + 1} is not there`);
    for (const entry of entries) {
      const { seq, occurred_at, link } = entry;
      if (seq !== place.seq + 1) throw new BrokenLog(`entry ${place.seq + 1} is not there`);
      if (!linkOf(place.link, entry).equals(link)) {
        throw new BrokenLog(`entry ${seq} does not follow entry ${place.seq}`);
      }
      if (occurred_at >= before) return place;
      place = { seq, link };
    }
  }
  return place;
}
