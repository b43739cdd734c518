import type { Sql } from '../db/pool.js';
import { Conditions } from '../lib/conditions.js';
import type { Instant } from '../lib/instant.js';
import { usedDayOf, type UsedDay, type UsedDayRow } from '../usage/summary-queries.js';
import type { Budget } from './budget.js';

/** The month of `at` until `at`. */
interface MonthUntil {
  since: Instant;
  until: Instant;
}

/** The use by the closed runs of a past day that is not stored for the budget. */
export interface ClosedDay extends UsedDay {
  version: string;
}

export interface ScopedUse {
  /** By UTC day. A day can be in several parts. */
  days: UsedDay[];
  unstored: ClosedDay[];
}

type Row = UsedDayRow & {
  [column: string]: unknown;
  kind: 'stored' | 'closed' | 'live';
  version: string | null;
};

const COLUMNS = ['micros', 'vcpu_micros', 'memory_mib_micros', 'disk_mib_micros'];
const NAMES = ['micros', 'vcpu_hour', 'memory_gib_hour', 'disk_gib_hour'];
/** Days of a part, with the columns of `usage_days`. */
const DAYS = `d.day, d.micros::numeric as micros, d.micros::numeric * p.vcpus as vcpu_micros,
        d.micros::numeric * p.memory_mib as memory_mib_micros, d.micros::numeric * p.disk_mib as disk_mib_micros`;

interface Parts {
  c: Conditions;
  org: string;
  since: string;
  until: string;
  /** Midnight before `until`. */
  today: string;
}

/**
 * The time in which sandboxes had a label. Closed runs of past days are stored for the budget. A stored day counts only
 * while the runs of the organization on that day are the same. Each change of one writes a row of the totals of the
 * day, and `version` has the transactions that wrote these rows. One statement reads all of it from one snapshot.
 */
export async function usedDaysOfLabel(
  sql: Sql,
  budget: Pick<Budget, 'org_id' | 'id'>,
  { key, value }: { key: string; value: string },
  month: MonthUntil,
): Promise<ScopedUse> {
  const parts = partsOf(budget, month);
  const { c, org, since, until, today } = parts;
  const times = 'range_agg(tstzrange(l.from_at, l.to_at))';
  const cut = (from: string, to: string, condition: string) => `
      select r.vcpus, r.memory_mib, r.disk_mib, greatest(r.started_at, ${from}, lower(had)) as from_at,
        least(r.stopped_at, ${to}, upper(had)) as to_at
      from runs r join labelled k on k.sandbox_id = r.sandbox_id cross join lateral unnest(k.times) as had
      where r.org_id = ${org} and r.started_at < ${to} and ${condition}`;
  return read(sql, budget, parts, {
    ctes: `used (sandbox_id) as materialized (
      select r.sandbox_id from runs r where r.org_id = ${org} and r.started_at < ${until} and r.end_reason is null
      union
      select r.sandbox_id from runs r
      where r.org_id = ${org} and r.started_at is not null and r.started_at < ${until} and r.stopped_at > ${today}
      union
      select u.sandbox_id from usage_days u
      where u.org_id = ${org} and u.day >= (select day from first_unstored) and u.day < ${utcDate(today)}
    ), labelled (sandbox_id, times, whole) as materialized (
      select l.sandbox_id, ${times},
        ${times} @> tstzrange((select at from first_unstored), greatest(${today}, (select at from first_unstored)))
      from label_periods l join used on used.sandbox_id = l.sandbox_id
      where l.org_id = ${org} and l.key = ${c.parameter(key)} and l.value = ${c.parameter(value)}
      group by l.sandbox_id)`,
    closed: `select ${DAYS} from (${cut(
      '(select at from first_unstored)',
      today,
      'r.started_at is not null and r.stopped_at > (select at from first_unstored) and not k.whole',
    )}) p cross join lateral days_of(p.from_at, p.to_at) d
      union all
      select u.day, ${COLUMNS.map((column) => `u.${column}`).join(', ')} from usage_days u
      where u.org_id = ${org} and u.day >= (select day from first_unstored) and u.day < ${utcDate(today)}
        and u.sandbox_id in (select k.sandbox_id from labelled k where k.whole)`,
    live: `select ${DAYS} from (${cut(since, until, 'r.end_reason is null')}
      union all ${cut(today, until, `r.started_at is not null and r.stopped_at > ${today}`)}
      ) p cross join lateral days_of(p.from_at, p.to_at) d`,
  });
}

/** The runs of an API key. Days are stored as for a label. */
export async function usedDaysOfKey(
  sql: Sql,
  budget: Pick<Budget, 'org_id' | 'id'>,
  keyId: string,
  month: MonthUntil,
): Promise<ScopedUse> {
  const parts = partsOf(budget, month);
  const { c, org, since, until, today } = parts;
  const key = c.parameter(keyId);
  const cut = (from: string, to: string, condition: string) => `
      select r.vcpus, r.memory_mib, r.disk_mib, greatest(r.started_at, r.key_since, ${from}) as from_at,
        least(r.stopped_at, ${to}) as to_at
      from runs r
      where r.org_id = ${org} and r.started_by_key = ${key} and r.started_at < ${to} and ${condition}`;
  return read(sql, budget, parts, {
    closed: `select ${DAYS} from (${cut(
      '(select at from first_unstored)',
      today,
      'r.stopped_at > (select at from first_unstored)',
    )}) p cross join lateral days_of(p.from_at, p.to_at) d`,
    live: `select ${DAYS} from (${cut(since, until, 'r.stopped_at is null')}
      union all ${cut(today, until, `r.stopped_at > ${today}`)}
      ) p cross join lateral days_of(p.from_at, p.to_at) d`,
  });
}

function partsOf({ org_id }: Pick<Budget, 'org_id'>, { since, until }: MonthUntil): Parts {
  const c = new Conditions();
  const instant = (value: Instant) => `${c.parameter(value)}::timestamptz`;
  const today = `${until.slice(0, 10)}T00:00:00.000000Z`;
  return {
    c,
    org: `${c.parameter(org_id)}::uuid`,
    since: instant(since),
    until: instant(until),
    today: instant(today),
  };
}

/** `closed`: runs of the past days that are not stored. `live`: open runs, and those of the current day. */
async function read(
  sql: Sql,
  { id }: Pick<Budget, 'id'>,
  { c, org, since, today }: Parts,
  { ctes, closed, live }: { ctes?: string; closed: string; live: string },
): Promise<ScopedUse> {
  const budget = `${c.parameter(id)}::uuid`;
  const sums = (alias: string) =>
    COLUMNS.map((column, index) => `coalesce(sum(${alias}.${column}), 0)::text as ${NAMES[index]}`).join(
      ', ',
    );
  const { rows } = await sql.query<Row>(
    `with versions as materialized (
      select t.day, md5(string_agg(t.part || ':' || t.xmin::text, ',' order by t.part)) as version
      from usage_totals t
      where t.org_id = ${org} and t.day >= ${utcDate(since)} and t.day < ${utcDate(today)}
      group by t.day
    ), valid as materialized (
      select b.* from budget_days b join versions v on v.day = b.day and v.version = b.version
      where b.org_id = ${org} and b.budget_id = ${budget}
    ), first_unstored as materialized (
      select f.day, f.day::timestamp at time zone 'UTC' as at from (
        select coalesce(min(v.day), ${utcDate(today)}) as day from versions v
        where not exists (select from valid b where b.day = v.day)) f
    ), ${ctes === undefined ? '' : `${ctes},`}
    closed as (${closed}),
    live as (${live})
    select 'stored' as kind, b.day::text, null as version, ${sums('b')}
    from valid b where b.day < (select day from first_unstored) group by b.day
    union all
    select 'closed', v.day::text, v.version, ${sums('p')}
    from versions v left join closed p on p.day = v.day
    where v.day >= (select day from first_unstored) group by v.day, v.version
    union all
    select 'live', p.day::text, null, ${sums('p')} from live p group by p.day`,
    c.values,
  );
  const days = rows.map(({ kind, version, ...row }) => ({ kind, version, ...usedDayOf(row as UsedDayRow) }));
  return {
    days: days.filter(({ micros }) => micros > 0n),
    unstored: days.flatMap(({ version, ...day }) => (version === null ? [] : [{ ...day, version }])),
  };
}

function utcDate(instant: string): string {
  return `(${instant} at time zone 'UTC')::date`;
}

/** Stores past days of a budget, so that starts need not add them up again. */
export async function storeDays(
  tx: Sql,
  { org_id, id }: Pick<Budget, 'org_id' | 'id'>,
  days: readonly ClosedDay[],
): Promise<void> {
  if (days.length === 0) return;
  const { vcpu, memory, disk } = {
    vcpu: days.map(({ used }) => used.vcpu_hour.toString()),
    memory: days.map(({ used }) => used.memory_gib_hour.toString()),
    disk: days.map(({ used }) => used.disk_gib_hour.toString()),
  };
  await tx.query(
    `insert into budget_days (org_id, budget_id, day, version, ${COLUMNS.join(', ')})
     select $1, $2, d.* from unnest($3::date[], $4::text[], $5::numeric[], $6::numeric[], $7::numeric[], $8::numeric[]) d
     on conflict (org_id, budget_id, day) do update set version = excluded.version,
       ${COLUMNS.map((column) => `${column} = excluded.${column}`).join(', ')}`,
    [
      org_id,
      id,
      days.map(({ day }) => day),
      days.map(({ version }) => version),
      days.map(({ micros }) => micros.toString()),
      vcpu,
      memory,
      disk,
    ],
  );
}
