import type { Sql } from '../db/pool.js';
import { Conditions } from '../lib/conditions.js';
import { addMillis, type Instant } from '../lib/instant.js';
import { type Metric, sumOf, type Quantities } from '../prices/price.js';
import { periodsToSum, storedDays } from './queries.js';
import { ACCRUALS_IN_WINDOW } from './storage-queries.js';
import { LONGEST_WINDOW_DAYS, splitWindow, type WindowPart, type TimeRange, type Window } from './window.js';

const DAY_MS = 86_400_000;

type Compute = Omit<Quantities, 'storage_gib_hour'>;
type ComputeRow = Record<keyof Compute, string>;

const SUMS = `sum(p.vcpu)::text as vcpu_hour, sum(p.memory)::text as memory_gib_hour,
       sum(p.disk)::text as disk_gib_hour`;

function computeOf({ vcpu_hour, memory_gib_hour, disk_gib_hour }: ComputeRow): Compute {
  return {
    vcpu_hour: BigInt(vcpu_hour),
    memory_gib_hour: BigInt(memory_gib_hour),
    disk_gib_hour: BigInt(disk_gib_hour),
  };
}

/** CTEs of the compute by UTC day and sandbox: stored days, and summed periods. */
function computeCtes(c: Conditions, orgId: string, part: WindowPart): string {
  const stored = part.whole
    ? `union all
       select u.day, u.sandbox_id, u.vcpu_micros, u.memory_mib_micros, u.disk_mib_micros from usage_days u
       where ${storedDays(c, orgId, part.whole)}`
    : '';
  return `periods as (${periodsToSum(c, orgId, part)}),
     parts (day, sandbox_id, vcpu, memory, disk) as (
       select d.day, t.sandbox_id, d.micros::numeric * t.vcpus, d.micros::numeric * t.memory_mib,
         d.micros::numeric * t.disk_mib
       from periods t cross join lateral days_of(t.from_at, t.to_at) d
       ${stored})`;
}

/** The use of sandboxes on one UTC day. `micros`: the sum of the times of runs. */
export interface UsedDay {
  day: string;
  micros: bigint;
  used: Compute;
}

export type UsedDayRow = ComputeRow & { day: string; micros: string };

export function usedDayOf({ day, micros, ...sums }: UsedDayRow): UsedDay {
  return { day, micros: BigInt(micros), used: computeOf(sums) };
}

/** Compute by UTC day. */
export async function computeDays(
  sql: Sql,
  orgId: string,
  window: Window,
): Promise<{ day: string; used: Compute }[]> {
  const days = await usedDays(sql, orgId, window);
  return days.map(({ day, used }) => ({ day, used }));
}

/**
 * Compute and times by UTC day, from the daily totals. The cost depends on the number of days and open runs, not on
 * closed runs.
 */
export async function usedDays(sql: Sql, orgId: string, window: Window): Promise<UsedDay[]> {
  const [part] = splitWindow(window, LONGEST_WINDOW_DAYS);
  if (!part) return [];
  const c = new Conditions();
  const today = partOfToday(part, window.now);
  const periods = periodsToSum(c, orgId, { ...part, edges: part.edges.filter((edge) => edge !== today) });
  const kept = today
    ? { from: part.whole?.from ?? today.from, to: addMillis(today.from, DAY_MS) }
    : part.whole;
  const parts = [
    `select d.day, d.micros::numeric, d.micros::numeric * t.vcpus, d.micros::numeric * t.memory_mib,
       d.micros::numeric * t.disk_mib
     from periods t cross join lateral days_of(t.from_at, t.to_at) d`,
    ...(kept
      ? [
          `select u.day, u.micros, u.vcpu_micros, u.memory_mib_micros, u.disk_mib_micros from usage_totals u
           where ${storedDays(c, orgId, kept)}`,
        ]
      : []),
    ...(today ? [closedAfterNow(c, orgId, today)] : []),
  ];
  const { rows } = await sql.query<UsedDayRow>(
    `with periods as (${periods}),
     parts (day, micros, vcpu, memory, disk) as (
       ${parts.join('\n union all ')})
     select p.day::text, sum(p.micros)::text as micros, ${SUMS}
     from parts p group by p.day having sum(p.micros) > 0 order by p.day`,
    c.values,
  );
  return rows.map(usedDayOf);
}

/** The range from midnight until now, if the window has all of it. */
function partOfToday({ edges }: WindowPart, now: Instant): TimeRange | undefined {
  const last = edges.at(-1);
  return last?.to === now && last.from.endsWith('T00:00:00.000000Z') ? last : undefined;
}

/** Subtracts runs whose end is later than `now`, by a clock that is ahead, from the total of today. */
function closedAfterNow(c: Conditions, orgId: string, today: TimeRange): string {
  const now = `${c.parameter(today.to)}::timestamptz`;
  return `select d.day, -d.micros::numeric, -d.micros::numeric * r.vcpus, -d.micros::numeric * r.memory_mib,
       -d.micros::numeric * r.disk_mib
     from runs r cross join lateral days_of(greatest(r.started_at, ${now}), r.stopped_at) d
     where r.org_id = ${c.parameter(orgId)} and r.started_at is not null and r.stopped_at > ${now}
       and d.day = ${c.parameter(today.from.slice(0, 10))}::date`;
}

export async function computeTotals(sql: Sql, orgId: string, window: Window): Promise<Quantities> {
  return sumOf((await computeDays(sql, orgId, window)).map(({ used }) => used));
}

/** The compute of one of the largest groups on one UTC day. */
export interface GroupDay {
  /** 0 is the largest group. */
  place: number;
  /** The name of the sandbox, or the value of each label. */
  names: (string | null)[];
  day: string;
  used: Compute;
}

/** The days of the largest groups, in the order of the days, and the number of all groups. */
export interface LargestGroups {
  days: GroupDay[];
  count: number;
}

export type GroupDayRow = ComputeRow & Omit<GroupDay, 'used'> & { count: number };

export function largestGroupsOf(rows: readonly GroupDayRow[]): LargestGroups {
  return {
    days: rows.map((row) => ({ place: row.place, names: row.names, day: row.day, used: computeOf(row) })),
    count: rows[0]?.count ?? 0,
  };
}

/** The `limit` sandboxes with the most usage. */
export async function largestSandboxes(
  sql: Sql,
  orgId: string,
  window: Window,
  limit: number,
): Promise<LargestGroups> {
  const [part] = splitWindow(window, LONGEST_WINDOW_DAYS);
  if (!part) return largestGroupsOf([]);
  const c = new Conditions();
  const { rows } = await sql.query<GroupDayRow>(
    `with ${computeCtes(c, orgId, part)},
     largest as (
       select t.sandbox_id, s.name, t.count, (row_number() over (order by t.most desc, s.name, s.id) - 1)::int as place
       from (select p.sandbox_id, sum(p.vcpu) as most, count(*) over () as count from parts p group by p.sandbox_id) t
       join sandboxes s on s.org_id = ${c.parameter(orgId)} and s.id = t.sandbox_id
       order by place
       limit ${c.parameter(limit)})
     select p.day::text, l.place, array[l.name] as names, l.count, ${SUMS}
     from largest l join parts p on p.sandbox_id = l.sandbox_id
     group by p.day, l.place, l.name, l.count
     order by p.day, l.place`,
    c.values,
  );
  return largestGroupsOf(rows);
}

/** Storage by UTC day, in MiB times microseconds, rounded to an integer. */
export async function storageDays(
  sql: Sql,
  orgId: string,
  { since, until, now }: Window,
): Promise<{ day: string; storage: string }[]> {
  const { rows } = await sql.query<{ day: string; storage: string }>(
    `with ${ACCRUALS_IN_WINDOW}
     select d.day::text, round(sum(d.micros::numeric * c.used_mib))::text as storage
     from cut c
     cross join lateral days_of(c.from_at, c.to_at) d
     group by d.day
     order by d.day`,
    [orgId, since, until, now],
  );
  return rows;
}

/** The bytes in all volumes by their last samples; null if there are none. */
export async function storedBytes(sql: Sql, orgId: string): Promise<number | null> {
  const { rows } = await sql.query<{ bytes: number | null }>(
    `select sum(used_bytes)::bigint as bytes from volumes
     where org_id = $1 and status = 'active' and removed_at is null`,
    [orgId],
  );
  return rows[0]!.bytes;
}

type IncludedHours = Partial<Record<Metric, number | null>>;

/** The included hours by quota. Null: the price book applies. */
export async function includedHours(sql: Sql, orgId: string): Promise<IncludedHours> {
  const { rows } = await sql.query<IncludedHours>(
    `select included_vcpu_hours as vcpu_hour, included_memory_gib_hours as memory_gib_hour,
       included_disk_gib_hours as disk_gib_hour
     from quotas where org_id = $1`,
    [orgId],
  );
  return rows[0] ?? {};
}
