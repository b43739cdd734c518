import type { Sql } from '../../db/pool.js';
import { Conditions } from '../../lib/conditions.js';
import { MAX_PAYLOAD_BYTES, payloadLength } from '../events/payload-length.js';
import { addFilter } from '../events/queries.js';
import { readTextRows, TEXT_COLUMNS, type EventTextRow } from './event-text.js';
import type { MonthWindow } from './month-window.js';
import type { PageRequest } from './page-queries.js';

/**
 * Payloads after MAX_PAYLOAD_BYTES are null, except the first. Those longer than that as stored are not decompressed to
 * measure them.
 */
export function readLongPage(
  sql: Sql,
  { orgId, filter, before, count }: PageRequest,
  { from, to }: MonthWindow,
): Promise<EventTextRow[]> {
  const where = new Conditions()
    .add((p) => `org_id = ${p(orgId)}`)
    .add((p) => `occurred_at >= ${p(from)}::timestamptz`)
    .add((p) => `occurred_at < ${p(to)}::timestamptz`)
    .add((p) => `(occurred_at, id) < (${p(before.occurredAt)}::timestamptz, ${p(before.id)}::uuid)`);
  addFilter(where, filter);
  const text = `select ${TEXT_COLUMNS.replace(/payload$/, 'case when fits then payload end as payload')}
     from (
       select *, sum(length) over newest <= ${MAX_PAYLOAD_BYTES} or row_number() over newest = 1 as fits
       from (
         select *, case when sum(pg_column_size(payload)) over newest - pg_column_size(payload) < ${MAX_PAYLOAD_BYTES}
           then ${payloadLength('payload')} else ${MAX_PAYLOAD_BYTES} end as length
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
  return readTextRows(sql, { text, values: where.values });
}
