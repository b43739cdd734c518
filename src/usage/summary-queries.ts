import type { Sql } from '../db/pool.js';
import { Conditions } from '../lib/conditions.js';
import { addMillis, type Instant } from '../lib/instant.js';
import { type Metric, sumOf, type Quantities } from '../prices/price.js';
import { looseStretches, storedDays } from './queries.js';
import { READINGS_CUT } from './storage-queries.js';
import { LONGEST_WINDOW_DAYS, slabsOf, type Slab, type Stretch, type Window } from './window.js';

const DAY_MS = 86_400_000;

/** What sandboxes metered, in integers. */
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

/** What each sandbox of an organization used by UTC day, in parts: stored days, and what has to be summed. */
function computeParts(c: Conditions, orgId: string, slab: Slab): string {
  const stored = slab.whole
    ? `union all
       select u.day, u.sandbox_id, u.vcpu_micros, u.memory_mib_micros, u.disk_mib_micros from usage_days u
       where ${storedDays(c, orgId, slab.whole)}`
    : '';
  return `stretches as (${looseStretches(c, orgId, slab)}),
     parts (day, sandbox_id, vcpu, memory, disk) as (
       select d.day, t.sandbox_id, d.micros::numeric * t.vcpus, d.micros::numeric * t.memory_mib,
         d.micros::numeric * t.disk_mib
       from stretches t cross join lateral days_of(t.from_at, t.to_at) d
       ${stored})`;
}

/**
 * What all sandboxes used, by UTC day, in order: what is kept of each day, and what has to be summed. It takes as long as there are
 * days and open runs, however many closed ones.
 */
export async function computeDays(
  sql: Sql,
  orgId: string,
  window: Window,
): Promise<{ day: string; used: Compute }[]> {
  const [slab] = slabsOf(window, LONGEST_WINDOW_DAYS);
  if (!slab) return [];
  const c = new Conditions();
  const today = beginningOfDay(slab, window.now);
  const loose = looseStretches(c, orgId, { ...slab, edges: slab.edges.filter((edge) => edge !== today) });
  const kept = today
    ? { from: slab.whole?.from ?? today.from, to: addMillis(today.from, DAY_MS) }
    : slab.whole;
  const parts = [
    `select d.day, d.micros::numeric, d.micros::numeric * t.vcpus, d.micros::numeric * t.memory_mib,
       d.micros::numeric * t.disk_mib
     from stretches t cross join lateral days_of(t.from_at, t.to_at) d`,
    ...(kept
      ? [
          `select u.day, u.micros, u.vcpu_micros, u.memory_mib_micros, u.disk_mib_micros from usage_totals u
           where ${storedDays(c, orgId, kept)}`,
        ]
      : []),
    ...(today ? [notYet(c, orgId, today)] : []),
  ];
  const { rows } = await sql.query<ComputeRow & { day: string }>(
    `with stretches as (${loose}),
     parts (day, micros, vcpu, memory, disk) as (
       ${parts.join('\n union all ')})
     select p.day::text, ${SUMS} from parts p group by p.day having sum(p.micros) > 0 order by p.day`,
    c.values,
  );
  return rows.map((row) => ({ day: row.day, used: computeOf(row) }));
}

/** The day that is not over: what of a slab lies in it, if that is its beginning up to now. */
function beginningOfDay({ edges }: Slab, now: Instant): Stretch | undefined {
  const last = edges.at(-1);
  return last?.to === now && last.from.endsWith('T00:00:00.000000Z') ? last : undefined;
}

/** To be taken from what is kept of today: what runs have closed at a time that is after now. Few have, if any. */
function notYet(c: Conditions, orgId: string, today: Stretch): string {
  const now = `${c.parameter(today.to)}::timestamptz`;
  return `select d.day, -d.micros::numeric, -d.micros::numeric * r.vcpus, -d.micros::numeric * r.memory_mib,
       -d.micros::numeric * r.disk_mib
     from runs r cross join lateral days_of(greatest(r.started_at, ${now}), r.stopped_at) d
     where r.org_id = ${c.parameter(orgId)} and r.started_at is not null and r.stopped_at > ${now}
       and d.day = ${c.parameter(today.from.slice(0, 10))}::date`;
}

/** What all sandboxes of an organization used in a window. */
export async function computeTotals(sql: Sql, orgId: string, window: Window): Promise<Quantities> {
  return sumOf((await computeDays(sql, orgId, window)).map(({ used }) => used));
}

export interface SandboxTotal {
  name: string;
  used: Compute;
}

/** The `limit` sandboxes that used most, of `count` that used anything. */
export async function sandboxTotals(
  sql: Sql,
  orgId: string,
  window: Window,
  limit: number,
): Promise<{ totals: SandboxTotal[]; count: number }> {
  const [slab] = slabsOf(window, LONGEST_WINDOW_DAYS);
  if (!slab) return { totals: [], count: 0 };
  const c = new Conditions();
  const { rows } = await sql.query<ComputeRow & { name: string; count: number }>(
    `with ${computeParts(c, orgId, slab)},
     totals as (select p.sandbox_id, ${SUMS}, sum(p.vcpu) as most from parts p group by p.sandbox_id)
     select s.name, t.vcpu_hour, t.memory_gib_hour, t.disk_gib_hour, count(*) over () as count
     from totals t join sandboxes s on s.org_id = ${c.parameter(orgId)} and s.id = t.sandbox_id
     order by t.most desc, s.name, s.id
     limit ${c.parameter(limit)}`,
    c.values,
  );
  return {
    totals: rows.map((row) => ({ name: row.name, used: computeOf(row) })),
    count: rows[0]?.count ?? 0,
  };
}

/** MiB times microseconds that all volumes held, by UTC day; rounded to a whole one, as a reading is no whole number of MiB. */
export async function storageDays(
  sql: Sql,
  orgId: string,
  { since, until, now }: Window,
): Promise<{ day: string; storage: string }[]> {
  const { rows } = await sql.query<{ day: string; storage: string }>(
    `with ${READINGS_CUT}
     select d.day::text, round(sum(d.micros::numeric * c.used_mib))::text as storage
     from cut c
     cross join lateral days_of(c.from_at, c.to_at) d
     group by d.day
     order by d.day`,
    [orgId, since, until, now],
  );
  return rows;
}

/** Bytes in all volumes by their last readings; null when none was taken. */
export async function storedBytes(sql: Sql, orgId: string): Promise<number | null> {
  const { rows } = await sql.query<{ bytes: number | null }>(
    `select sum(used_bytes)::bigint as bytes from volumes
     where org_id = $1 and status = 'active' and removed_at is null`,
    [orgId],
  );
  return rows[0]!.bytes;
}

type IncludedHours = Partial<Record<Metric, number | null>>;

/** The hours that the quotas of an organization include in a month. Null: those of the price book. */
export async function includedHours(sql: Sql, orgId: string): Promise<IncludedHours> {
  const { rows } = await sql.query<IncludedHours>(
    `select included_vcpu_hours as vcpu_hour, included_memory_gib_hours as memory_gib_hour,
       included_disk_gib_hours as disk_gib_hour
     from quotas where org_id = $1`,
    [orgId],
  );
  return rows[0] ?? {};
}
