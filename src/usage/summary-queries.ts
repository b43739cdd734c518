import { Conditions } from '../lib/conditions.js';
import type { Sql } from '../db/pool.js';
import { noQuantities, type Quantities } from './price.js';
import { looseStretches, storedDays } from './queries.js';
import { LONGEST_WINDOW_DAYS, slabsOf, type Slab, type Window } from './window.js';

/** What was metered on a UTC day, in integers as text. */
export interface ComputeDay {
  day: string;
  vcpu: string;
  memory: string;
  disk: string;
}

/** What all sandboxes used, by UTC day. */
export async function computeDays(sql: Sql, orgId: string, slab: Slab): Promise<ComputeDay[]> {
  const c = new Conditions();
  const stored = slab.whole
    ? `union all
       select u.day, u.vcpu_micros, u.memory_mib_micros, u.disk_mib_micros from usage_days u
       where ${storedDays(c, orgId, slab.whole)}`
    : '';
  const { rows } = await sql.query<ComputeDay & Record<string, unknown>>(
    `with stretches as (${looseStretches(c, orgId, slab)})
     select p.day::text, sum(p.vcpu)::text as vcpu, sum(p.memory)::text as memory, sum(p.disk)::text as disk
     from (
       select d.day, d.micros::numeric * t.vcpus as vcpu, d.micros::numeric * t.memory_mib as memory,
         d.micros::numeric * t.disk_mib as disk
       from stretches t cross join lateral days_of(t.from_at, t.to_at) d
       ${stored}) p
     group by p.day
     order by p.day`,
    c.values,
  );
  return rows;
}

/** What all sandboxes of an organization used in a window. */
export async function computeTotals(sql: Sql, orgId: string, window: Window): Promise<Quantities> {
  const totals = noQuantities();
  for (const slab of slabsOf(window, LONGEST_WINDOW_DAYS)) {
    for (const { vcpu, memory, disk } of await computeDays(sql, orgId, slab)) {
      totals.vcpu_hour += BigInt(vcpu);
      totals.memory_gib_hour += BigInt(memory);
      totals.disk_gib_hour += BigInt(disk);
    }
  }
  return totals;
}

export interface SandboxTotal {
  name: string;
  vcpu: string;
  memory: string;
  disk: string;
}

/** The `limit` sandboxes that used most, of `count` that used anything. */
export async function sandboxTotals(
  sql: Sql,
  orgId: string,
  window: Window,
  limit: number,
): Promise<{ rows: SandboxTotal[]; count: number }> {
  const [slab] = slabsOf(window, LONGEST_WINDOW_DAYS);
  if (!slab) return { rows: [], count: 0 };
  const c = new Conditions();
  const stored = slab.whole
    ? `union all
       select u.sandbox_id, u.vcpu_micros, u.memory_mib_micros, u.disk_mib_micros from usage_days u
       where ${storedDays(c, orgId, slab.whole)}`
    : '';
  const { rows } = await sql.query<SandboxTotal & { count: number }>(
    `with stretches as (${looseStretches(c, orgId, slab)}),
     totals as (
       select p.sandbox_id, sum(p.vcpu) as vcpu, sum(p.memory) as memory, sum(p.disk) as disk
       from (
         select t.sandbox_id, d.micros::numeric * t.vcpus as vcpu, d.micros::numeric * t.memory_mib as memory,
           d.micros::numeric * t.disk_mib as disk
         from stretches t cross join lateral days_of(t.from_at, t.to_at) d
         ${stored}) p
       group by p.sandbox_id)
     select s.name, t.vcpu::text, t.memory::text, t.disk::text, count(*) over () as count
     from totals t join sandboxes s on s.org_id = ${c.parameter(orgId)} and s.id = t.sandbox_id
     order by t.vcpu desc, s.name, s.id
     limit ${c.parameter(limit)}`,
    c.values,
  );
  return { rows, count: rows[0]?.count ?? 0 };
}

/** MiB times microseconds that all volumes held, by UTC day; rounded to a whole one, as a reading is no whole number of MiB. */
export async function storageDays(
  sql: Sql,
  orgId: string,
  { since, until, now }: Window,
): Promise<{ day: string; storage: string }[]> {
  const { rows } = await sql.query<{ day: string; storage: string }>(
    `select d.day::text, round(sum(d.micros::numeric * a.used_mib))::text as storage
     from accruals a
     cross join lateral days_of(greatest(a.from_at, $2::timestamptz),
       least(a.to_at, $4::timestamptz, $3::timestamptz)) d
     where a.org_id = $1 and a.from_at < least($3::timestamptz, $4::timestamptz) and a.to_at > $2
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
