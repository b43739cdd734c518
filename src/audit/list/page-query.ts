import type { Sql, Statement } from '../../db/pool.js';
import { prepared } from '../../db/prepared.js';
import { Conditions } from '../../lib/conditions.js';
import type { Instant } from '../../lib/instant.js';
import { addFilter, FILTER_COLUMNS, type EventFilter, type FilterColumn } from '../events/queries.js';
import { AS_TEXTS, SHORT_COLUMNS, type EventTexts } from './event-text.js';
import { within, type Window } from './window.js';

export type Place = readonly [occurredAt: Instant, id: string];

/** Ids begin here. */
export const FIRST_ID = '00000000-0000-0000-0000-000000000000';

export interface PageAsked {
  orgId: string;
  filter: EventFilter;
  /** Events before this place, newest first. */
  before: Place;
  count: number;
  /** Those of these months. `last`: none at all when there are events of later ones. Undefined: of all months. */
  months?: Window & { last: boolean; isRecent: boolean };
}

/** Of a short read: each is looked for by itself, in every month. */
const MOST_VALUES = 4;

/** No page is longer, with the one that shows that there are more. */
const MOST_EVENTS = 101;

/** What a page is read along: an index that has the events of each of these in the order of time. */
type Lead = { column: FilterColumn; of: readonly string[] } | { column: 'event_type'; categories: true };

/**
 * Which column leads is for us to say: a plan that is made once for all values has to be good for each. `undecided`: only the values
 * tell, so it is planned for each anew, by what the database knows of them.
 */
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

/** Is it about one thing, or some? */
export function isAbout(filter: EventFilter): boolean {
  const lead = leadOf(filter);
  return typeof lead === 'object' && lead.column === 'resource_id';
}

/** Is the page read along an index with nothing to be left out, however few pass the filter? */
export function isShort(filter: EventFilter): boolean {
  const lead = leadOf(filter);
  if (lead === undefined || lead === 'undecided') return filter.columns.length === 0;
  const isAlone = filter.columns.length === 1 && filter.columns[0]!.exclude.length === 0;
  return isAlone && 'of' in lead && lead.of.length <= MOST_VALUES;
}

/**
 * A page of events, newest first, whose plan can be made once: the planner sees no value (a `select` around each hides it), so that
 * it has no reason to plan for each anew, which takes three times as long as all the rest.
 *
 * It has to read in the order of an index and to stop when the page is full, though it takes any organization and any type for one
 * of few events. Two limits see to that: of a number it does not know it takes a tenth of what there is, however little; and
 * the known one outside holds where there is much. And a page of one type goes from one place to another of the index that begins
 * with it, by row values and in their order: with `=` it may as well walk through all events for one type of them.
 */
function pageStatement({ orgId, filter, before, count, months }: PageAsked): Statement {
  const lead = leadOf(filter);
  const steered = lead !== 'undecided';
  const hide = (value: string, type: string) =>
    steered ? `(select ${value}::${type})` : `${value}::${type}`;
  const where = new Conditions();
  const given = (value: unknown, type: string) => hide(where.parameter(value), type);
  const org = given(orgId, 'uuid');
  const limit = given(count, 'int');
  const [at, id] = [given(before[0], 'timestamptz'), given(before[1], 'uuid')];
  const since = given(filter.since ?? '-infinity', 'timestamptz');
  where.add(() => `org_id = ${org}`);
  if (months) where.add(() => within('occurred_at', months));
  if (months?.last) {
    // By the newest of each: a planner that looks for any takes it that there is one, and reads on and on when there is none.
    const isOlder = (table: string, column: string) => `coalesce(
      (select ${column} from ${table} where org_id = ${org} order by ${column} desc limit 1) < '${months.to}', true)`;
    where.add(() => isOlder('event_months', 'month')).add(() => isOlder('unsealed_events', 'occurred_at'));
  }
  const isLead = (column: FilterColumn) => typeof lead === 'object' && 'of' in lead && lead.column === column;
  const others = filter.columns.map((each) => (isLead(each.column) ? { ...each, include: [] } : each));
  addFilter(where, { columns: others, since: undefined, until: undefined }, 'events', hide);

  const order = 'occurred_at desc, id desc';
  /**
   * Those between two places, of all events or of one `value` of a column. That it is not null follows from that, but the planner does
   * not see it, and the index of resources has no others.
   */
  const along = (column?: FilterColumn, value?: string) => {
    const place = (...of: string[]) => (value === undefined ? of : [value, ...of]).join(', ');
    const [places, ordered, there] = column
      ? [`${column}, occurred_at, id`, `${column} desc, ${order}`, `and ${column} is not null`]
      : ['occurred_at, id', order, ''];
    return `select ${SHORT_COLUMNS} from events
     where ${where.text} ${there}
       and (${places}) < (${place(at, id)})
       and (${places}) >= (${place(since, `'${FIRST_ID}'::uuid`)})
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
  const text = `select * from (${page()}) page limit ${MOST_EVENTS}`;
  const isKept = steered && (months?.isRecent ?? true);
  const composed = filter.columns.length > 0;
  return isKept ? prepared(text, where.values, { composed }) : { text, values: where.values };
}

/** The types of which there may be events of the categories that the filter includes. */
function typesOf(
  org: string,
  filter: EventFilter,
  months: Window | undefined,
  given: (value: unknown, type: string) => string,
): string {
  const { include } = filter.columns.find(({ column }) => column === 'category')!;
  const categories = given(include, 'text[]');
  const included = `org_id = ${org} and category = any (${categories}::text[])`;
  return `select event_type from event_months where ${included}${months ? ` and ${within('month', months)}` : ''}
    union select event_type from unsealed_events where ${included}`;
}

/** Rows of what was asked for; those with a long payload come without it. */
export async function readPage(sql: Sql, asked: PageAsked): Promise<EventTexts[]> {
  const statement = { ...pageStatement(asked), ...AS_TEXTS };
  const { rows } = await sql.query<EventTexts & Record<string, unknown>>(statement);
  return rows;
}
