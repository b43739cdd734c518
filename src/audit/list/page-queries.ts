import type { Sql, Statement } from '../../db/pool.js';
import { prepared } from '../../db/prepared.js';
import { Conditions } from '../../lib/conditions.js';
import type { Instant } from '../../lib/instant.js';
import { addFilter, FILTER_COLUMNS, type EventFilter, type FilterColumn } from '../events/queries.js';
import { readTextRows, SHORT_COLUMNS, type EventTextRow } from './event-text.js';
import { inWindow, type MonthWindow } from './month-window.js';

export interface SortKey {
  occurredAt: Instant;
  id: string;
}

export const FIRST_ID = '00000000-0000-0000-0000-000000000000';

export interface PageRequest {
  orgId: string;
  filter: EventFilter;
  before: SortKey;
  count: number;
  /** Default: all months. `last`: return no rows when later months have events. `isRecent`: prepare the statement. */
  months?: MonthWindow & { last: boolean; isRecent: boolean };
}

/** A short read probes the index of every month for each value. */
const MAX_SHORT_VALUES = 4;

/** The longest page, and one event that shows that there are more. */
const MAX_ROWS = 101;

/** The column whose index has the events of each value in the order of time. */
type Lead = { column: FilterColumn; of: readonly string[] } | { column: 'event_type'; categories: true };

/** Chooses the index of the page, since the generic plan must be good for all values. `undecided`: the planner chooses by the values. */
function leadOf(filter: EventFilter): Lead | 'undecided' | undefined {
  const included = (name: FilterColumn) => [
    ...new Set(filter.columns.find(({ column }) => column === name)?.include),
  ];
  const of = { resource_id: included('resource_id'), actor_id: included('actor_id') };
  const [types, categories] = [included('event_type'), included('category')];
  if (of.resource_id.length > 0) return { column: 'resource_id', of: of.resource_id };
  if (of.actor_id.length > 0) {
    return types.length + categories.length > 0 ? 'undecided' : { column: 'actor_id', of: of.actor_id };
  }
  if (types.length > 0) return { column: 'event_type', of: types };
  return categories.length > 0 ? { column: 'event_type', categories: true } : undefined;
}

export function isAboutResource(filter: EventFilter): boolean {
  const lead = leadOf(filter);
  return typeof lead === 'object' && lead.column === 'resource_id';
}

/** Whether an index returns exactly the rows of the page, so that none are read and discarded. */
export function isShortRead(filter: EventFilter): boolean {
  const lead = leadOf(filter);
  if (lead === undefined || lead === 'undecided') return filter.columns.length === 0;
  const isOnlyCondition =
    filter.columns.length === 1 && filter.columns.every(({ exclude }) => exclude.length === 0);
  return isOnlyCondition && 'of' in lead && lead.of.length <= MAX_SHORT_VALUES;
}

/**
 * A page of events, newest first. A `select` around each value hides it from the planner, which then keeps one generic
 * plan. Planning for each request takes three times as long as the remaining work.
 * The plan must follow an index and stop at a full page, although the planner expects few events of any organization or
 * type. For a parameterised LIMIT the planner assumes 10 % of the rows; the literal outer limit bounds the estimate for
 * large tables. Row values bound the scan of one type: with `=` the planner may scan all events and filter by type.
 */
function pageStatement({ orgId, filter, before, count, months }: PageRequest): Statement {
  const lead = leadOf(filter);
  const steered = lead !== 'undecided';
  const hide = (value: string, type: string) =>
    steered ? `(select ${value}::${type})` : `${value}::${type}`;
  const where = new Conditions();
  const given = (value: unknown, type: string) => hide(where.parameter(value), type);
  const org = given(orgId, 'uuid');
  const limit = given(count, 'int');
  const [at, id] = [given(before.occurredAt, 'timestamptz'), given(before.id, 'uuid')];
  const since = given(filter.since ?? '-infinity', 'timestamptz');
  where.add(() => `org_id = ${org}`);
  if (months) where.add(() => inWindow('occurred_at', months));
  if (months?.last) {
    // Compares the newest row: for `exists` the planner expects a match soon and scans everything when there is none.
    const isOlder = (table: string, column: string) => `coalesce(
      (select ${column} from ${table} where org_id = ${org} order by ${column} desc limit 1) < '${months.to}', true)`;
    where.add(() => isOlder('event_months', 'month')).add(() => isOlder('unsealed_events', 'occurred_at'));
  }
  const isLead = (column: FilterColumn) => typeof lead === 'object' && 'of' in lead && lead.column === column;
  const others = filter.columns.map((each) => (isLead(each.column) ? { ...each, include: [] } : each));
  addFilter(where, { columns: others, since: undefined, until: undefined }, 'events', hide);

  const order = 'occurred_at desc, id desc';
  /** Scans one index range. `is not null` lets the planner use the partial index of resources. */
  const along = (column?: FilterColumn, value?: string) => {
    const bound = (...of: string[]) => (value === undefined ? of : [value, ...of]).join(', ');
    const [key, ordered, there] = column
      ? [`${column}, occurred_at, id`, `${column} desc, ${order}`, `and ${column} is not null`]
      : ['occurred_at, id', order, ''];
    return `select ${SHORT_COLUMNS} from events
     where ${where.text} ${there}
       and (${key}) < (${bound(at, id)})
       and (${key}) >= (${bound(since, `'${FIRST_ID}'::uuid`)})
     order by ${ordered}
     limit ${limit}`;
  };
  const merged = (column: FilterColumn, values: string) =>
    `select found.* from (${values}) lead (value)
     cross join lateral (${along(column, 'lead.value')}) found
     order by ${order}
     limit ${limit}`;
  const page = () => {
    if (typeof lead !== 'object') return along();
    const type = FILTER_COLUMNS[lead.column];
    if (!('of' in lead)) return merged(lead.column, typesOf(org, filter, months, given));
    const [first, ...more] = lead.of;
    if (more.length === 0) return along(lead.column, given(first, type));
    return merged(lead.column, `select unnest(${given(lead.of, `${type}[]`)})`);
  };
  const text = `select * from (${page()}) page limit ${MAX_ROWS}`;
  const isPrepared = steered && (months?.isRecent ?? true);
  const composed = filter.columns.length > 0;
  return isPrepared ? prepared(text, where.values, { composed }) : { text, values: where.values };
}

function typesOf(
  org: string,
  filter: EventFilter,
  months: MonthWindow | undefined,
  given: (value: unknown, type: string) => string,
): string {
  const { include } = filter.columns.find(({ column }) => column === 'category')!;
  const categories = given(include, 'text[]');
  const included = `org_id = ${org} and category = any (${categories}::text[])`;
  return `select event_type from event_months where ${included}${months ? ` and ${inWindow('month', months)}` : ''}
    union select event_type from unsealed_events where ${included}`;
}

export function readPage(sql: Sql, request: PageRequest): Promise<EventTextRow[]> {
  return readTextRows(sql, pageStatement(request));
}

export async function getRecentEvent(
  sql: Sql,
  orgId: string,
  id: string,
  window: MonthWindow,
): Promise<EventTextRow | undefined> {
  const statement = prepared(
    `select ${SHORT_COLUMNS} from events
     where org_id = $1 and id = $2 and ${inWindow('occurred_at', window)} and occurred_at = (
       select occurred_at from event_log where org_id = $1 and event_id = $2
       union all
       select occurred_at from unsealed_events where org_id = $1 and event_id = $2
       limit 1)`,
    [orgId, id],
  );
  const rows = await readTextRows(sql, statement);
  return rows.at(0);
}
