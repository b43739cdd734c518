import type { Sql, Statement } from '../../db/pool.js';
import { prepared } from '../../db/prepared.js';
import { Conditions } from '../../lib/conditions.js';
import type { Instant } from '../../lib/instant.js';
import { PAGE_LIMIT } from '../../lib/page.js';
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
const MAX_ROWS = PAGE_LIMIT.max + 1;

/** The index that a page scans. The generic plan must be good for all values, so the text of the statement chooses. */
type Path =
  /** All events of the organization, in the order of time. */
  | { by: 'time' }
  /** The events of each value of a column, merged in the order of time. */
  | { by: 'values'; column: FilterColumn; values: readonly string[] }
  /** The same, of each type of event that the asked categories have. */
  | { by: 'categories'; categories: readonly string[] }
  /** The planner chooses by the values, in a plan for each request. */
  | { by: 'planner' };

function pathOf(filter: EventFilter): Path {
  const included = (name: FilterColumn) => [
    ...new Set(filter.columns.find(({ column }) => column === name)?.include),
  ];
  const [resources, actors] = [included('resource_id'), included('actor_id')];
  const [types, categories] = [included('event_type'), included('category')];
  if (resources.length > 0) return { by: 'values', column: 'resource_id', values: resources };
  if (actors.length > 0) {
    // Either of two indexes may pass over nearly all of its rows.
    if (types.length + categories.length > 0) return { by: 'planner' };
    return { by: 'values', column: 'actor_id', values: actors };
  }
  if (types.length > 0) return { by: 'values', column: 'event_type', values: types };
  return categories.length > 0 ? { by: 'categories', categories } : { by: 'time' };
}

export function isAboutResource(filter: EventFilter): boolean {
  const path = pathOf(filter);
  return path.by === 'values' && path.column === 'resource_id';
}

/** Whether an index returns exactly the rows of the page, so that none are read and discarded. */
export function isShortRead(filter: EventFilter): boolean {
  const path = pathOf(filter);
  if (path.by === 'time') return filter.columns.length === 0;
  const isOnlyCondition =
    filter.columns.length === 1 && filter.columns.every(({ exclude }) => exclude.length === 0);
  return path.by === 'values' && isOnlyCondition && path.values.length <= MAX_SHORT_VALUES;
}

/** Writes a value into a statement: a placeholder and its type. */
type Given = (placeholder: string, type: string) => string;

/** A `select` hides the value from the planner, which then keeps one generic plan. */
const hidden: Given = (placeholder, type) => `(select ${placeholder}::${type})`;
const shown: Given = (placeholder, type) => `${placeholder}::${type}`;

/** The conditions and bounds that each scan of a page has. */
interface Scan {
  where: Conditions;
  /** The position of the page, and the end of its time. */
  before: { at: string; id: string };
  since: string;
  limit: string;
}

/**
 * A page of events, newest first. Planning for each request takes three times as long as the remaining work, so the
 * statement is prepared, and hides its values from the planner.
 * The plan must follow an index and stop at a full page, although the planner expects few events of any organization or
 * type. For a parameterised LIMIT the planner assumes 10 % of the rows; the literal outer limit bounds the estimate for
 * large tables. Row values bound the scan of one type: with `=` the planner may scan all events and filter by type.
 */
function pageStatement({ orgId, filter, before, count, months }: PageRequest): Statement {
  const path = pathOf(filter);
  const given = path.by === 'planner' ? shown : hidden;
  const where = new Conditions();
  const parameter = (value: unknown, type: string) => given(where.parameter(value), type);
  const org = parameter(orgId, 'uuid');
  const scan: Scan = {
    where,
    limit: parameter(count, 'int'),
    before: { at: parameter(before.occurredAt, 'timestamptz'), id: parameter(before.id, 'uuid') },
    since: parameter(filter.since ?? '-infinity', 'timestamptz'),
  };
  where.add(() => `org_id = ${org}`);
  if (months) where.add(() => inWindow('occurred_at', months));
  if (months?.last) where.add(() => noneAfter(months, org));
  const others = filter.columns.map((each) =>
    path.by === 'values' && path.column === each.column ? { ...each, include: [] } : each,
  );
  addFilter(where, { columns: others, since: undefined, until: undefined }, 'events', given);

  const text = `select * from (${scansOf(path)}) page limit ${MAX_ROWS}`;
  const isPrepared = path.by !== 'planner' && (months?.isRecent ?? true);
  const composed = filter.columns.length > 0;
  return isPrepared ? prepared(text, where.values, { composed }) : { text, values: where.values };

  function scansOf(chosen: Path): string {
    switch (chosen.by) {
      case 'time':
      case 'planner':
        return scanText(scan);
      case 'categories': {
        const types = typesOf(org, parameter(chosen.categories, 'text[]'), months);
        return mergeText(scan, 'event_type', types);
      }
      case 'values': {
        const { column, values } = chosen;
        const type = FILTER_COLUMNS[column];
        if (values.length === 1) return scanText(scan, { column, value: parameter(values[0], type) });
        return mergeText(scan, column, `select unnest(${parameter(values, `${type}[]`)})`);
      }
    }
  }
}

const ORDER = 'occurred_at desc, id desc';

/** Scans one range of an index: of the events of `of`, or of all. */
function scanText(
  { where, before, since, limit }: Scan,
  of?: { column: FilterColumn; value: string },
): string {
  const [columns, order, value] = of
    ? [`${of.column}, occurred_at, id`, `${of.column} desc, ${ORDER}`, `${of.value}, `]
    : ['occurred_at, id', ORDER, ''];
  // It lets the planner use the partial index of resources.
  const hasValue = of ? `and ${of.column} is not null` : '';
  return `select ${SHORT_COLUMNS} from events
     where ${where.text} ${hasValue}
       and (${columns}) < (${value}${before.at}, ${before.id})
       and (${columns}) >= (${value}${since}, '${FIRST_ID}'::uuid)
     order by ${order}
     limit ${limit}`;
}

/** Merges the scans of several values. `values`: SQL that selects them. */
function mergeText(scan: Scan, column: FilterColumn, values: string): string {
  return `select found.* from (${values}) lead (value)
     cross join lateral (${scanText(scan, { column, value: 'lead.value' })}) found
     order by ${ORDER}
     limit ${scan.limit}`;
}

/**
 * No later month has events. It compares the newest row: for `exists` the planner expects a match soon, and scans
 * everything when there is none.
 */
function noneAfter(months: MonthWindow, org: string): string {
  const isOlder = (table: string, column: string) => `coalesce(
      (select ${column} from ${table} where org_id = ${org} order by ${column} desc limit 1) < '${months.to}', true)`;
  return `${isOlder('event_months', 'month')} and ${isOlder('unsealed_events', 'occurred_at')}`;
}

function typesOf(org: string, categories: string, months: MonthWindow | undefined): string {
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
