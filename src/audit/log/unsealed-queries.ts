import type { Sql } from '../../db/pool.js';
import { monthAfter, startOfMonth, type Instant } from '../../lib/instant.js';
import type { EventContent } from '../events/hash-chain.js';
import { MAX_PAYLOAD_BYTES, payloadLength } from '../events/payload-length.js';

export async function orgsWithUnsealed(sql: Sql): Promise<string[]> {
  // A skip scan of the index: after an import one organization may have millions of rows.
  const { rows } = await sql.query<{ org_id: string }>(
    `with recursive orgs as (
       (select org_id from unsealed_events order by org_id limit 1)
       union all
       select (select u.org_id from unsealed_events u where u.org_id > o.org_id order by u.org_id limit 1)
       from orgs o where o.org_id is not null
     )
     select org_id from orgs where org_id is not null`,
  );
  return rows.map(({ org_id }) => org_id);
}

/** `place`: the number in the queue. */
export type UnsealedEvent = EventContent & { place: number; leaf: Buffer | null; mark: Buffer | null };

/**
 * Both ends inclusive. Batches do not start at the oldest place: old snapshots keep dead rows of sealed events in the
 * index.
 */
export interface QueueRange {
  from: number;
  upTo: number;
}

/**
 * Default range: the queue now. `left`: the next range. `whole`: return the content of every event, not only of those
 * without a leaf.
 */
export async function readUnsealed(
  tx: Sql,
  orgId: string,
  range: QueueRange | undefined,
  { limit, whole = false }: { limit: number; whole?: boolean },
): Promise<{ events: UnsealedEvent[]; left: QueueRange | undefined }> {
  const bounds = await queueBounds(tx, orgId);
  if (!bounds) return { events: [], left: undefined };
  const { first, last, low, high } = bounds;
  const { from: lowest, upTo } = range ?? { from: low, upTo: high };
  // Time bounds limit the partitions that PostgreSQL opens. Whole months also cover events queued between the two
  // queries.
  const [from, to] = [startOfMonth(first), monthAfter(startOfMonth(last))];
  // A queued event that was deleted from `events` stays in the queue, where verification finds it.
  const { rows } = await tx.query<UnsealedEvent & { fits: boolean } & Record<string, unknown>>(
    `select place, org_id, id, occurred_at, leaf, mark, resource_id, fits,
       case when leaf is null or $7 then category end as category,
       case when leaf is null or $7 then event_type end as event_type,
       case when leaf is null or $7 then actor end as actor,
       case when (leaf is null or $7) and fits then payload end as payload
     from (
       select *, sum(length) over (order by place) - length < ${MAX_PAYLOAD_BYTES} as fits
       from (
         select u.place, e.*
         from unsealed_events u
         cross join lateral (
           select *, case when leaf is null or $7 then ${payloadLength('payload')} else 0 end as length
           from events
           where org_id = u.org_id and occurred_at = u.occurred_at and id = u.event_id
             and occurred_at >= $5 and occurred_at < $6
           offset 0
         ) e
         where u.org_id = $1 and u.place >= $2 and u.place <= $3
         order by u.place
         limit $4
       ) waiting
     ) measured
     order by place`,
    [orgId, lowest, upTo, limit, from, to, whole],
  );
  const events = rows.filter(({ fits }) => fits);
  const more = rows.length === limit || events.length < rows.length;
  return { events, left: more ? { from: events.at(-1)!.place + 1, upTo } : undefined };
}

interface QueueBounds {
  first: Instant;
  last: Instant;
  low: number;
  high: number;
}

async function queueBounds(tx: Sql, orgId: string): Promise<QueueBounds | undefined> {
  const { rows } = await tx.query<QueueBounds & Record<string, unknown>>(
    `select min(occurred_at) as first, max(occurred_at) as last, min(place) as low, max(place) as high
     from unsealed_events where org_id = $1 having count(*) > 0`,
    [orgId],
  );
  return rows.at(0);
}

export async function deleteUnsealed(tx: Sql, orgId: string, places: readonly number[]): Promise<void> {
  await tx.query('delete from unsealed_events where org_id = $1 and place = any ($2::bigint[])', [
    orgId,
    places,
  ]);
}
