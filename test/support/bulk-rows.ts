import type { Sql } from '../../src/db/pool.js';
import type { Instant } from '../../src/lib/instant.js';

/** The number of rows for an organization, in the `days` before `until`. */
export interface Plenty {
  sandboxes: number;
  /** For each sandbox, all of them closed and none longer than an hour. */
  runs: number;
  events: number;
  until: Instant;
  days: number;
}

/** One in this many sandboxes has the label. No sandbox has both `left` and `right`. */
export const ONE_IN = { common: 2, rare: 2_500, left: 10, right: 10 } as const;

/** A UUID that begins with a time, like those of the service, and is otherwise of version 4. */
const uuidAt = (time: string) =>
  `(regexp_replace(lpad(to_hex((extract(epoch from ${time}) * 1000)::bigint), 12, '0'), '^(.{8})', '\\1-')
    || substr(gen_random_uuid()::text, 14))::uuid`;

/** The n-th of $3 points in time, evenly over the $4 days before $2. */
const TIME = "$2::timestamptz - (($3::bigint - n) * ($4::float8 / nullif($3::bigint, 0))) * interval '1 day'";

/** Copies of the existing sandbox, with its specification, that differ in the columns that lists read. */
const SANDBOXES = `
  insert into sandboxes
  select r.* from sandboxes t
  cross join generate_series(0, $3::bigint - 1) n
  cross join lateral (select ${TIME}) a (at)
  cross join lateral (select jsonb_strip_nulls(jsonb_build_object(
    'team', 'team-' || n % 20, 'app', 'app-' || n % 50,
    'common', case when n % ${ONE_IN.common} = 0 then 'yes' end,
    'rare', case when n % ${ONE_IN.rare} = 1 then 'yes' end,
    'left', case when n % ${ONE_IN.left} = 3 then 'yes' end,
    'right', case when n % ${ONE_IN.right} = 7 then 'yes' end))) l (labels)
  cross join lateral jsonb_populate_record(t, jsonb_build_object(
    'id', ${uuidAt('at')}, 'name', 'box-' || lpad(n::text, 6, '0'), 'slug', $1::uuid || '-' || n,
    'status', case when n % 1000 = 999 then 'running' when n % 50 = 0 then 'failed' when n % 20 = 0 then 'created'
      else 'stopped' end,
    'created_at', at, 'changed_at', at, 'removed_at', case when n % 25 = 24 then at end,
    'spec', jsonb_set(t.spec::jsonb, '{labels}', labels))) r
  where t.org_id = $1::uuid`;

const LABELS = `
  insert into sandbox_labels (org_id, key, value, created_at, sandbox_id)
  select s.org_id, l.key, l.value, s.created_at, s.id
  from sandboxes s cross join lateral json_each_text(s.spec -> 'labels') l
  where s.org_id = $1 and s.removed_at is null`;

/** Runs in sequence from the creation until the end. */
const RUNS = `
  insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
  select s.org_id, ${uuidAt('at')}, s.id, 2, 2048, 10, at, at + least(slot * 0.8, interval '1 hour'), 'exited'
  from sandboxes s
  cross join lateral (select ($2::timestamptz - s.created_at) / $3::int) t (slot)
  cross join generate_series(0, $3::int - 1) n
  cross join lateral (select s.created_at + n * slot) a (at)
  where s.org_id = $1 and s.created_at < $2::timestamptz`;

/** Sealed events. One type in a hundred is rare; each is about a sandbox and of one of ten actors. */
const EVENTS = `
  with written as (
    insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id, resource_id)
    select $1::uuid, ${uuidAt('at')}, at, case when n % 100 = 99 then 'apikey' else 'sandbox' end,
      case when n % 100 = 99 then 'api_key_created' else
        (array['sandbox_created', 'sandbox_started', 'sandbox_stopped', 'sandbox_deleted'])[n % 4 + 1] end,
      '{"kind":"system","code":"reconciler","label":"Sandkeep reconciler"}', json_build_object('filling', repeat('x', 300)), 'system',
      'actor-' || n / 7 % 10, (array(select id from sandboxes where org_id = $1 limit 500))[n % 500 + 1]
    from generate_series(0, $3::bigint - 1) n cross join lateral (select ${TIME}) t (at)
    returning org_id, id, occurred_at)
  insert into event_log (org_id, seq, event_id, occurred_at, leaf, unmarked, link)
  select org_id, row_number() over (order by occurred_at, id), id, occurred_at, decode(repeat('00', 32), 'hex'), true,
    decode(repeat('00', 32), 'hex')
  from written`;

const MONTHS = `
  insert into event_months (org_id, event_type, category, month)
  select distinct org_id, event_type, category, date_trunc('month', occurred_at, 'UTC') from events where org_id = $1
  on conflict do nothing`;

/**
 * Fills an organization that has one sandbox, by a few fast statements. `sql`: one session of the owner of the
 * tables. The caller runs `vacuum analyze`.
 */
export async function loadPlenty(
  sql: Sql,
  orgId: string,
  { sandboxes, runs, events, until, days }: Plenty,
): Promise<void> {
  await sql.query('set statement_timeout = 0');
  await sql.query(SANDBOXES, [orgId, until, sandboxes, days]);
  // Triggers are off: no test reads what they would write.
  await sql.query("set session_replication_role = 'replica'");
  await sql.query(LABELS, [orgId]);
  await sql.query(
    `select make_event_partition(month) from generate_series(
       date_trunc('month', $1::timestamptz - $2 * interval '1 day', 'UTC'), $1::timestamptz, '1 month') month`,
    [until, days],
  );
  await sql.query(EVENTS, [orgId, until, events, days]);
  await sql.query(MONTHS, [orgId]);
  await sql.query('reset session_replication_role');
  await sql.query('analyze sandboxes');
  await sql.query(RUNS, [orgId, until, runs]);
}
