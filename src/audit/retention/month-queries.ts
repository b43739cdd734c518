import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';

/** The months before `before` in which an organization has or had events, newest first, by their first instants. */
export async function monthsWithEvents(sql: Sql, orgId: string, before: Instant): Promise<Instant[]> {
  const { rows } = await sql.query<{ month: Instant }>(
    `with recursive found (month) as (
       select $2::timestamptz
       union all
       select greatest(
         (select m.month from event_months m
          where m.org_id = $1 and m.month < found.month
          order by m.month desc limit 1),
         (select date_trunc('month', u.occurred_at, 'UTC') from unsealed_events u
          where u.org_id = $1 and u.occurred_at < found.month
          order by u.occurred_at desc limit 1))
       from found where found.month is not null
     )
     select month from found where month < $2::timestamptz`,
    [orgId, before],
  );
  return rows.map(({ month }) => month);
}
