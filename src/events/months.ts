import type { Sql } from '../db/pool.js';
import { Conditions } from '../lib/conditions.js';
import { startOfMonth, type Instant } from '../lib/instant.js';

/**
 * `events` has a partition for each month. A query that says, as values, between which times its events lie is planned for the
 * partitions of these only; one that does not opens and locks every one there is: with 124 of them a page took 35 ms, and takes 4
 * (docs/performance.md).
 */

export interface MonthsAsked {
  /** Only months with an event of any of these; empty: of any. */
  types: readonly string[];
  categories: readonly string[];
  since: Instant | undefined;
  /** The beginning of the month before which they lie; undefined: none. */
  before: Instant | undefined;
}

/** The months in which an organization has events, newest first, by their first instants. Some may have none, or no longer. */
export async function monthsWithEvents(
  sql: Sql,
  orgId: string,
  { types, categories, since, before = 'infinity' }: MonthsAsked,
  limit: number,
): Promise<Instant[]> {
  const where = new Conditions().add((p) => `m.org_id = ${p(orgId)}`);
  if (types.length > 0) where.add((p) => `m.event_type = any (${p(types)})`);
  if (categories.length > 0) where.add((p) => `m.category = any (${p(categories)})`);
  const first = where.parameter(since === undefined ? '-infinity' : startOfMonth(since));
  const end = where.parameter(before);
  // From one month to the one before it by the indexes, and no further than the limit.
  const { rows } = await sql.query<{ month: Instant }>(
    `with recursive found (month) as (
       select ${end}::timestamptz
       union all
       select greatest(
         (select m.month from event_months m
          where ${where.text} and m.month < found.month
          order by m.month desc limit 1),
         (select date_trunc('month', u.occurred_at, 'UTC') from unsealed_events u
          where u.org_id = $1 and u.occurred_at < found.month
          order by u.occurred_at desc limit 1))
       from found where found.month > ${first}::timestamptz
     )
     select month from found where month >= ${first}::timestamptz and month < ${end}::timestamptz
     limit ${where.parameter(limit)}`,
    where.values,
  );
  return rows.map(({ month }) => month);
}
