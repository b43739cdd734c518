import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';

export async function findInsertedEvent(
  sql: Sql,
  orgId: string,
): Promise<{ id: string; occurred_at: Instant } | undefined> {
  const { rows } = await sql.query<{ id: string; occurred_at: Instant }>(
    `select e.id, e.occurred_at from events e
     where e.org_id = $1
       and not exists (
         select from event_log l
         where l.org_id = $1 and l.event_id = e.id and l.occurred_at = e.occurred_at)
       and not exists (
         select from unsealed_events u
         where u.org_id = $1 and u.occurred_at = e.occurred_at and u.event_id = e.id)
     order by e.occurred_at, e.id limit 1`,
    [orgId],
  );
  return rows.at(0);
}

export async function hasKeysWithoutLog(sql: Sql, orgId: string): Promise<boolean> {
  const { rows } = await sql.query(
    `select from api_keys where org_id = $1
       and not exists (select from event_chains where org_id = $1 and seq > 0)
       and not exists (select from unsealed_events where org_id = $1)
     limit 1`,
    [orgId],
  );
  return rows.length > 0;
}

export async function findMisplacedEvent(
  sql: Sql,
  orgId: string,
): Promise<{ event_id: string; misplaced: boolean } | undefined> {
  const { rows } = await sql.query<{ event_id: string; misplaced: boolean }>(
    `select event_id, not place between 1 and ${Number.MAX_SAFE_INTEGER} as misplaced from unsealed_events
     where org_id = $1
       and (not place between 1 and ${Number.MAX_SAFE_INTEGER} or queued_at > clock_timestamp() + interval '1 minute')
     order by place limit 1`,
    [orgId],
  );
  return rows.at(0);
}

export async function findLostEvent(
  sql: Sql,
  orgId: string,
): Promise<{ event_id: string; occurred_at: Instant } | undefined> {
  const { rows } = await sql.query<{ event_id: string; occurred_at: Instant }>(
    `select u.event_id, u.occurred_at from unsealed_events u
     where u.org_id = $1 and not exists (
       select from events e where e.org_id = $1 and e.occurred_at = u.occurred_at and e.id = u.event_id)
     order by u.place limit 1`,
    [orgId],
  );
  return rows.at(0);
}

export async function findLateEvent(
  sql: Sql,
  orgId: string,
): Promise<{ event_id: string; queued_at: Instant } | undefined> {
  const { rows } = await sql.query<{ event_id: string; queued_at: Instant }>(
    `select event_id, queued_at from unsealed_events
     where org_id = $1 and queued_at < clock_timestamp() - interval '1 minute'
     order by place limit 1`,
    [orgId],
  );
  return rows.at(0);
}

export async function countUnsealed(sql: Sql, orgId: string): Promise<number> {
  const { rows } = await sql.query<{ count: number }>(
    'select count(*) from unsealed_events where org_id = $1',
    [orgId],
  );
  return rows.at(0)!.count;
}

export interface ListedMonth {
  event_type: string;
  category: string;
  month: Instant;
}

export async function listedMonths(sql: Sql, orgId: string): Promise<ListedMonth[]> {
  const { rows } = await sql.query<ListedMonth & Record<string, unknown>>(
    'select event_type, category, month from event_months where org_id = $1',
    [orgId],
  );
  return rows;
}
