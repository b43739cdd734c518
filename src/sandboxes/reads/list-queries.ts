import { SEPARATE } from '../../db/planner-hints.js';
import type { Pool, Sql } from '../../db/pool.js';
import { prepared } from '../../db/prepared.js';
import { inTransaction } from '../../db/transaction.js';
import { Conditions } from '../../lib/conditions.js';
import type { Position } from '../../lib/cursor.js';
import { instantFromPostgres, type Instant } from '../../lib/instant.js';
import { textColumns } from '../queries.js';
import type { SandboxTextRow } from '../row.js';
import type { SandboxStatus, StopReason } from '../../spec/statuses.js';

export interface SandboxFilter {
  labels: [key: string, value: string][];
  /** Any of these; empty: all statuses. */
  statuses: SandboxStatus[];
  /** Any of these. Undefined, which is left out of cursors: all sandboxes. */
  stopReasons?: StopReason[] | undefined;
  namePrefix: string | undefined;
  /** In any case of letters. Undefined is left out of cursors. */
  nameContains?: string | undefined;
  /** Both exclusive. */
  createdAfter: Instant | undefined;
  createdBefore: Instant | undefined;
}

const SORTS = {
  '-created_at': { column: 'created_at', type: 'timestamptz', direction: 'desc', after: '<', until: '>=' },
  created_at: { column: 'created_at', type: 'timestamptz', direction: 'asc', after: '>', until: '<=' },
  name: { column: 'name', type: 'text', direction: 'asc', after: '>', until: '<=' },
} as const;
export type Sort = keyof typeof SORTS;

/** Each sandbox of a label by one probe: a join may read all of them to sort a page of 20. */
const LABELLED = `sandbox_labels f cross join lateral (
    select * from sandboxes own where own.org_id = f.org_id and own.id = f.sandbox_id ${SEPARATE}
  ) as s`;
const LABELLED_IN_ANY_ORDER =
  'sandbox_labels f join sandboxes s on s.org_id = f.org_id and s.id = f.sandbox_id';

/** Sorts after every character of a name. */
const LAST_CHARACTER = '\u{10ffff}';

/**
 * No index finds the middle of a name. A page looks at so many names at most, which is about 15 ms of work. The next
 * page goes on after them, so one request cannot read all sandboxes of a large organization.
 */
export const SEARCHED = 5_000;

/** The highest count of a label: a label below it is rare. */
export const COUNTED = 200;

/** The number of sandboxes of each label, up to `COUNTED`. */
export async function countLabels(
  sql: Sql,
  orgId: string,
  labels: SandboxFilter['labels'],
): Promise<number[]> {
  const { rows } = await sql.query<{ count: number; position: number }>(
    prepared(
      `select (select count(*) from (
          select from sandbox_labels l where l.org_id = $1 and l.key = f.key and l.value = f.value limit $4
        ) as found) as count, position
       from unnest($2::text[], $3::text[]) with ordinality as f (key, value, position)`,
      [orgId, labels.map(([key]) => key), labels.map(([, value]) => value), COUNTED],
    ),
  );
  return rows.toSorted((a, b) => a.position - b.position).map(({ count }) => count);
}

/**
 * Filters that make a scan pass over sandboxes. Another index than that of labels may be faster for them, so the
 * planner chooses.
 */
export function passesOver({ statuses, stopReasons, namePrefix, nameContains }: SandboxFilter): boolean {
  const isName = namePrefix !== undefined || nameContains !== undefined;
  return isName || statuses.length > 0 || stopReasons !== undefined;
}

/** Whether the indexes of the labels can be merged: they have the order of creation. */
export function canMerge(filter: SandboxFilter, sort: Sort): boolean {
  return filter.labels.length > 1 && sort !== 'name' && !passesOver(filter);
}

export interface SandboxPage {
  filter: SandboxFilter;
  sort: Sort;
  after?: Position | undefined;
  limit: number;
  /** Merges the indexes of all labels, within `mergingLabels`. Default: false. */
  sideBySide?: boolean;
  /** The last position of the page, as the search by the middle of a name has. */
  until?: Position | undefined;
}

/** Long specifications are left out. */
export async function getSandboxPage(sql: Sql, orgId: string, page: SandboxPage): Promise<SandboxTextRow[]> {
  const { where, scan } = scanOf(orgId, page);
  const { rows } = await sql.query<SandboxTextRow>(
    prepared(
      `select ${textColumns({ whole: false })} ${scan} limit ${where.parameter(page.limit)}`,
      where.values,
      { composed: isComposed(page.filter) },
    ),
  );
  return rows;
}

/**
 * Where a search by the middle of a name ends for now: the sandbox after `searched` others of the remaining filters.
 * Undefined: it has less to look at. The search takes it as its bound, so that changes in between hide nothing.
 */
export async function endOfSearch(
  sql: Sql,
  orgId: string,
  page: SandboxPage,
  searched = SEARCHED,
): Promise<PositionRow | undefined> {
  const { where, scan } = scanOf(orgId, { ...page, filter: { ...page.filter, nameContains: undefined } });
  const { rows } = await sql.query<PositionRow>(
    prepared(
      `select s.id, s.name, s.created_at ${scan} offset ${where.parameter(searched)} limit 1`,
      where.values,
      { composed: true },
    ),
  );
  return rows[0];
}

const isComposed = (filter: SandboxFilter) =>
  Object.values(filter)
    .flat()
    .some((asked) => asked !== undefined);

function scanOf(orgId: string, page: SandboxPage): { where: Conditions; scan: string } {
  const where = new Conditions();
  where.add((p) => `s.org_id = ${p(orgId)}`).add(() => 's.removed_at is null and not s.warm');
  const { from, order } = sourceOf(where, orgId, page);
  addFilters(where, page.filter);
  for (const bound of boundsOf(where, order, page)) where.add(() => bound);
  return { where, scan: `from ${from} where ${where.text} ${orderBy(order, page.sort)}` };
}

function orderBy({ key, id }: Pick<Order, 'key' | 'id'>, sort: Sort): string {
  const { direction } = SORTS[sort];
  return `order by ${key} ${direction}, ${id} ${direction}`;
}

/** The columns that order a page. An index can only be scanned in order from its own columns. */
interface Order {
  key: string;
  id: string;
  /** The time of creation. */
  time: string;
}

/**
 * Without labels a page scans the sandboxes in order. With labels it scans the index of the first label and probes for
 * the others (docs/decisions/0004-labels-in-a-side-table.md), or merges the indexes of all.
 */
function sourceOf(where: Conditions, orgId: string, page: SandboxPage): { from: string; order: Order } {
  const { filter, sort, sideBySide = false } = page;
  const [first, ...others] = filter.labels;
  const ofSandbox = { key: `s.${SORTS[sort].column}`, id: 's.id', time: 's.created_at' };
  const ofLabel = { key: 'f.created_at', id: 'f.sandbox_id', time: 'f.created_at' };
  if (!first) return { from: 'sandboxes s', order: ofSandbox };
  if (sideBySide && canMerge(filter, sort)) {
    return { from: mergedLabels(where, orgId, page), order: ofLabel };
  }
  where.add((p) => `f.org_id = ${p(orgId)} and f.key = ${p(first[0])} and f.value = ${p(first[1])}`);
  for (const [label, value] of others) {
    where.add(
      (p) => `exists (
        select from sandbox_labels l
        where l.org_id = f.org_id and l.key = ${p(label)} and l.value = ${p(value)}
          and l.created_at = f.created_at and l.sandbox_id = f.sandbox_id
        ${SEPARATE})`,
    );
  }
  if (sort === 'name') return { from: LABELLED_IN_ANY_ORDER, order: ofSandbox };
  return { from: passesOver(filter) ? LABELLED_IN_ANY_ORDER : LABELLED, order: ofLabel };
}

function addFilters(where: Conditions, filter: SandboxFilter): void {
  const { statuses, stopReasons, namePrefix: prefix, nameContains: part } = filter;
  const [status, ...more] = statuses;
  // The index keeps the order for one status only.
  if (status !== undefined && more.length === 0) where.add((p) => `s.status = ${p(status)}::text`);
  if (more.length > 0) where.add((p) => `s.status = any (${p(statuses)}::text[])`);
  if (stopReasons) where.add((p) => `s.stop_reason = any (${p(stopReasons)}::text[])`);
  // Bounds instead of `like`: an index finds them in a plan for any prefix.
  if (prefix !== undefined) {
    where.add((p) => `s.name >= ${p(prefix)}::text and s.name < ${p(prefix + LAST_CHARACTER)}::text`);
  }
  if (part !== undefined) where.add((p) => `position(lower(${p(part)}::text) in lower(s.name)) > 0`);
}

/** The bounds of the scan: the asked times, and the position of the page. */
function boundsOf(
  where: Conditions,
  { key, id, time }: Order,
  { filter: { createdAfter, createdBefore }, sort, after, until }: SandboxPage,
): string[] {
  const { type, ...comparisons } = SORTS[sort];
  const bounds: string[] = [];
  if (createdAfter !== undefined) bounds.push(`${time} > ${where.parameter(createdAfter)}::timestamptz`);
  if (createdBefore !== undefined) bounds.push(`${time} < ${where.parameter(createdBefore)}::timestamptz`);
  const position = ([value, sandboxId]: Position) =>
    `(${where.parameter(value)}::${type}, ${where.parameter(sandboxId)}::uuid)`;
  if (after) bounds.push(`(${key}, ${id}) ${comparisons.after} ${position(after)}`);
  if (until) bounds.push(`(${key}, ${id}) ${comparisons.until} ${position(until)}`);
  return bounds;
}

type PositionRow = Pick<SandboxTextRow, 'id' | 'name' | 'created_at'>;

export function positionOf({ id, name, created_at }: PositionRow, sort: Sort): Position {
  const value = sort === 'name' ? String(name) : instantFromPostgres(String(created_at));
  return [value, String(id)];
}

/**
 * Leaves the planner only a merge of the label indexes, which stops at a full page. The planner knows no parameters.
 * Misleading statistics cost 80 ms for probes of two disjoint labels of 10,000 sandboxes, and 100 ms for hashes of two
 * of 100,000. With fresh statistics of 100,000 sandboxes both ways take 2 ms. `npm run bench -- hints` prints them.
 */
export const MERGE_ONLY = [
  'enable_nestloop = off',
  'enable_hashjoin = off',
  'enable_sort = off',
  'max_parallel_workers_per_gather = 0',
  'join_collapse_limit = 1',
]
  .map((setting) => `set local ${setting}`)
  .join('; ');

export async function mergingLabels<T>(pool: Pool, work: (tx: Sql) => Promise<T>): Promise<T> {
  return inTransaction(pool, async (tx) => {
    await tx.query(MERGE_ONLY);
    return work(tx);
  });
}

/**
 * Leaves the planner only the scan of an index in order, which stops after `SEARCHED` names. Near the end of a list it
 * reads the whole table and sorts, which is fast for 20,000 sandboxes and not for a million.
 */
export const IN_ORDER = ['enable_seqscan = off', 'enable_bitmapscan = off'];

export async function searchingNames<T>(pool: Pool, work: (tx: Sql) => Promise<T>): Promise<T> {
  return inTransaction(pool, async (tx) => {
    await tx.query(IN_ORDER.map((setting) => `set local ${setting}`).join('; '));
    return work(tx);
  });
}

/** Like `LABELLED`, for the sandboxes with all labels: a merge of their indexes from the position of the page. */
function mergedLabels(where: Conditions, orgId: string, page: SandboxPage): string {
  const { direction } = SORTS[page.sort];
  const org = `${where.parameter(orgId)}::uuid`;
  const scans = page.filter.labels.map(([key, value], index) => {
    const alias = `l${index}`;
    const time = `${alias}.created_at`;
    const conditions = [
      `${alias}.org_id = ${org}`,
      `${alias}.key = ${where.parameter(key)}`,
      `${alias}.value = ${where.parameter(value)}`,
      ...boundsOf(where, { key: time, id: `${alias}.sandbox_id`, time }, page),
    ];
    return { alias, condition: conditions.join(' and ') };
  });
  const [first, ...others] = scans;
  const joined = others.map(({ alias }) => `join sandbox_labels ${alias} using (created_at, sandbox_id)`);
  return `(select created_at, sandbox_id
      from sandbox_labels ${first!.alias} ${joined.join(' ')}
      where ${scans.map(({ condition }) => condition).join(' and ')}
      order by created_at ${direction}, sandbox_id ${direction} ${SEPARATE}) as f
    cross join lateral (
      select * from sandboxes own where own.org_id = ${org} and own.id = f.sandbox_id ${SEPARATE}) as s`;
}
