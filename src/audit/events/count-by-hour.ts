import type { Sql } from '../../db/pool.js';
import { prepared } from '../../db/prepared.js';
import type { Instant } from '../../lib/instant.js';

interface HourCount {
  event_type: string;
  /** The start of the UTC hour. */
  hour: Instant;
  count: number;
}

/** The events of each type since a time, by hour. The newest `most` of each type are counted. */
export async function countEventsByHour(
  sql: Sql,
  orgId: string,
  { types, since, most }: { types: readonly string[]; since: Instant; most: number },
): Promise<HourCount[]> {
  const { rows } = await sql.query<HourCount & Record<string, unknown>>(
    prepared(
      `select given.event_type, date_trunc('hour', found.occurred_at, 'UTC') as hour, count(*)::int as count
       from unnest($2::text[]) as given (event_type)
       cross join lateral (
         select e.occurred_at from events e
         where e.org_id = $1 and e.event_type = given.event_type and e.occurred_at >= $3::timestamptz
         order by e.occurred_at desc
         limit $4
       ) as found
       group by given.event_type, hour`,
      [orgId, types, since, most],
    ),
  );
  return rows;
}
