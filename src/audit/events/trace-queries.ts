import type { Sql } from '../../db/pool.js';
import { write, type EventTarget } from '../../db/write-batch.js';
import { addMillis, type Instant } from '../../lib/instant.js';
import { parseTraceparent, type TraceContext } from '../../lib/trace-context.js';
import type { NewEventRow } from './queries.js';

/** How long work that follows a request belongs to its trace, in milliseconds. */
export const TRACE_KEPT_MS = 15 * 60_000;

/** Stores the trace of a sampled request with its events, in the transaction of them. */
export async function insertTraces(target: EventTarget, events: readonly NewEventRow[]): Promise<void> {
  const { span } = target;
  if (!span?.context.sampled || events.length === 0) return;
  await write(
    target,
    (p) => `insert into event_traces (org_id, event_id, resource_id, traceparent, created_at)
     select org_id, event_id, resource_id, ${p(span.traceparent)}, at from unnest(
       ${p(events.map(({ org_id }) => org_id))}::uuid[],
       ${p(events.map(({ id }) => id))}::uuid[],
       ${p(events.map(({ resource_id }) => resource_id))}::uuid[],
       ${p(events.map(({ occurred_at }) => occurred_at))}::timestamptz[]
     ) as e (org_id, event_id, resource_id, at)`,
  );
}

/** The trace of the latest sampled request that changed a sandbox or another resource. */
export async function traceOfResource(
  sql: Sql,
  orgId: string,
  resourceId: string,
  now: Instant,
): Promise<TraceContext | undefined> {
  const { rows } = await sql.query<{ traceparent: string }>(
    `select traceparent from event_traces where org_id = $1 and resource_id = $2 and created_at > $3
     order by event_id desc limit 1`,
    [orgId, resourceId, addMillis(now, -TRACE_KEPT_MS)],
  );
  return parseTraceparent(rows[0]?.traceparent);
}

/** The trace of the request that recorded an event, else of the latest earlier one that changed its resource. */
export async function traceOfEvent(
  sql: Sql,
  orgId: string,
  event: { id: string; occurred_at: Instant },
): Promise<TraceContext | undefined> {
  const { rows } = await sql.query<{ traceparent: string }>(
    `with resource as (select resource_id from events where org_id = $1 and occurred_at = $3 and id = $2)
     (select traceparent from event_traces where org_id = $1 and event_id = $2)
     union all
     (select t.traceparent from event_traces t join resource r on t.resource_id = r.resource_id
      where t.org_id = $1 and t.event_id < $2 and t.created_at > $4
      order by t.event_id desc limit 1)
     limit 1`,
    [orgId, event.id, event.occurred_at, addMillis(event.occurred_at, -TRACE_KEPT_MS)],
  );
  return parseTraceparent(rows[0]?.traceparent);
}

export async function deleteTraces(sql: Sql, before: Instant, limit: number): Promise<number> {
  const { rowCount } = await sql.query(
    `delete from event_traces where (org_id, event_id) in (
       select org_id, event_id from event_traces where created_at < $1 order by created_at limit $2
       for update skip locked)`,
    [before, limit],
  );
  return rowCount ?? 0;
}
