import type { Sql } from '../../db/pool.js';
import { Conditions } from '../../lib/conditions.js';
import { lengthOf, MOST_BYTES } from '../events/length.js';
import { addFilter } from '../events/queries.js';
import { AS_TEXTS, TEXT_COLUMNS, type EventTexts } from './event-text.js';
import type { PageAsked } from './page-query.js';
import type { Window } from './window.js';

/**
 * A page of these months, of which some events are long: as many as fit into MOST_BYTES, and one at least. Those that do not fit
 * come without their payload, and behind what is too much already as it is stored nothing is unpacked to measure it.
 */
export async function readLongPage(
  sql: Sql,
  { orgId, filter, before, count }: PageAsked,
  { from, to }: Window,
): Promise<EventTexts[]> {
  const where = new Conditions()
    .add((p) => `org_id = ${p(orgId)}`)
    .add((p) => `occurred_at >= ${p(from)}::timestamptz`)
    .add((p) => `occurred_at < ${p(to)}::timestamptz`)
    .add((p) => `(occurred_at, id) < (${p(before[0])}::timestamptz, ${p(before[1])}::uuid)`);
  addFilter(where, filter);
  const text = `select ${TEXT_COLUMNS.replace(/payload$/, 'case when fits then payload end as payload')}
     from (
       select *, sum(length) over newest <= ${MOST_BYTES} or row_number() over newest = 1 as fits
       from (
         select *, case when sum(pg_column_size(payload)) over newest - pg_column_size(payload) < ${MOST_BYTES}
           then ${lengthOf('payload')} else ${MOST_BYTES} end as length
         from (
           select ${TEXT_COLUMNS} from events
           where ${where.text}
           order by occurred_at desc, id desc
           limit ${where.parameter(count)}::int
         ) found
         window newest as (order by occurred_at desc, id desc)
       ) measured
       window newest as (order by occurred_at desc, id desc)
     ) compared
     order by occurred_at desc, id desc`;
  const statement = { text, values: where.values, ...AS_TEXTS };
  const { rows } = await sql.query<EventTexts & Record<string, unknown>>(statement);
  return rows;
}
