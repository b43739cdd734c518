import { SEPARATE } from '../db/planner-hints.js';
import type { Pool, Sql } from '../db/pool.js';
import { prepared } from '../db/prepared.js';
import { inTransaction } from '../db/transaction.js';
import { Conditions } from '../lib/conditions.js';
import type { Position } from '../lib/cursor.js';
import { instantFromPostgres, type Instant } from '../lib/instant.js';
import { textColumns } from './queries.js';
import type { SandboxTextRow } from './row.js';
import type { SandboxStatus, StopReason } from '../spec/schema.js';

export interface SandboxFilter {
  labels: [key: string, value: string][];
  /** Any of these; empty: all statuses. */
  statuses: SandboxStatus[];
  /** Any of these. Undefined, which is left out of cursors: all sandboxes. */
  stopReasons?: StopReason[] | undefined;
  namePrefix: string | undefined;
  /** Both exclusive. */
  createdAfter: Instant | undefined;
  createdBefore: Instant | undefined;
}

const SORTS = {
  '-created_at': { column: 'created_at', type: 'timestamptz', direction: 'desc', after: '<' },
  created_at: { column: 'created_at', type: 'timestamptz', direction: 'asc', after: '>' },
  name: { column: 'name', type: 'text', direction: 'asc', after: '>' },
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
 * Without labels a page scans the sandboxes in order. With labels it scans the index of the first label and probes for the
 * others (docs/decisions/0004-labels-in-a-side-table.md). `sideBySide`: merges the indexes of all labels, within
 * `mergingLabels`. Long specifications are left out.
 */
export async function listSandboxes(
  sql: Sql,
  orgId: string,
  filter: SandboxFilter,
  sort: Sort,
  after: readonly [string, string] | undefined,
  limit: number,
  { sideBySide = false } = {},
): Promise<SandboxTextRow[]> {
  const { column, type, direction, after: comparison } = SORTS[sort];
  const where = new Conditions();
  const [first, ...others] = filter.labels;
  // Another index than that of labels may be faster for these filters, so the planner chooses.
  const passesOver =
    filter.statuses.length > 0 || filter.stopReasons !== undefined || filter.namePrefix !== undefined;
  const isMerged = sideBySide && others.length > 0 && sort !== 'name' && !passesOver;
  const walked = first && sort !== 'name' ? { time: 'f.created_at', id: 'f.sandbox_id' } : undefined;
  const key = walked?.time ?? `s.${column}`;
  const id = walked?.id ?? 's.id';
  where.add((p) => `s.org_id = ${p(orgId)}`).add(() => 's.removed_at is null');
  if (first && !isMerged)
    where.add((p) => `f.org_id = ${p(orgId)} and f.key = ${p(first[0])} and f.value = ${p(first[1])}`);
  for (const [label, value] of isMerged ? [] : others) {
    where.add(
      (p) => `exists (
        select from sandbox_labels l
        where l.org_id = f.org_id and l.key = ${p(label)} and l.value = ${p(value)}
          and l.created_at = f.created_at and l.sandbox_id = f.sandbox_id
        ${SEPARATE})`,
    );
  }
  const [status, ...more] = filter.statuses;
  // The index keeps the order for one status only.
  if (status !== undefined && more.length === 0) where.add((p) => `s.status = ${p(status)}::text`);
  if (more.length > 0) where.add((p) => `s.status = any (${p(filter.statuses)}::text[])`);
  const { stopReasons } = filter;
  if (stopReasons) where.add((p) => `s.stop_reason = any (${p(stopReasons)}::text[])`);
  const { namePrefix: prefix } = filter;
  // Bounds instead of `like`: an index finds them in a plan for any prefix.
  if (prefix !== undefined) {
    where.add((p) => `s.name >= ${p(prefix)}::text and s.name < ${p(prefix + LAST_CHARACTER)}::text`);
  }
  const time = walked?.time ?? 's.created_at';
  if (filter.createdAfter !== undefined) where.add((p) => `${time} > ${p(filter.createdAfter)}::timestamptz`);
  if (filter.createdBefore !== undefined)
    where.add((p) => `${time} < ${p(filter.createdBefore)}::timestamptz`);
  if (after)
    where.add((p) => `(${key}, ${id}) ${comparison} (${p(after[0])}::${type}, ${p(after[1])}::uuid)`);
  const merged = () => mergedLabels(where, orgId, filter, { direction, comparison }, after);
  const labelled = () => (walked && !passesOver ? LABELLED : LABELLED_IN_ANY_ORDER);
  const from = isMerged ? merged() : first ? labelled() : 'sandboxes s';
  const text = `select ${textColumns({ whole: false })} from ${from}
     where ${where.text}
     order by ${key} ${direction}, ${id} ${direction}
     limit ${where.parameter(limit)}`;
  const composed = Object.values(filter)
    .flat()
    .some((asked) => asked !== undefined);
  const { rows } = await sql.query<SandboxTextRow>(prepared(text, where.values, { composed }));
  return rows;
}

export function positionOf({ id, name, created_at }: SandboxTextRow, sort: Sort): Position {
  const value = sort === 'name' ? String(name) : instantFromPostgres(String(created_at));
  return [value, String(id)];
}

/**
 * Leaves the planner only a merge of the label indexes, which stops at a full page. The planner knows no parameters. Misleading
 * statistics cost 80 ms for probes of two disjoint labels of 10,000 sandboxes, and 100 ms for hashes of two of 100,000.
 * With fresh statistics of 100,000 sandboxes both ways take 2 ms. `npm run bench -- hints` prints them.
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

/** Like `LABELLED`, for the sandboxes with all labels: a merge of their indexes from the position of the page. */
function mergedLabels(
  where: Conditions,
  orgId: string,
  { labels, createdAfter, createdBefore }: SandboxFilter,
  { direction, comparison }: { direction: string; comparison: string },
  after: readonly [string, string] | undefined,
): string {
  const org = `${where.parameter(orgId)}::uuid`;
  const [time, id] = ['created_at', 'sandbox_id'];
  const walks = labels.map(([key, value], index) => {
    const of = `l${index}`;
    const bounds = [
      ...(createdAfter === undefined
        ? []
        : [`${of}.${time} > ${where.parameter(createdAfter)}::timestamptz`]),
      ...(createdBefore === undefined
        ? []
        : [`${of}.${time} < ${where.parameter(createdBefore)}::timestamptz`]),
      ...(after
        ? [
            `(${of}.${time}, ${of}.${id}) ${comparison} (${where.parameter(after[0])}::timestamptz, ${where.parameter(after[1])}::uuid)`,
          ]
        : []),
    ];
    const label = `${of}.org_id = ${org} and ${of}.key = ${where.parameter(key)} and ${of}.value = ${where.parameter(value)}`;
    return { of, where: [label, ...bounds].join(' and ') };
  });
  const [first, ...others] = walks;
  const joined = others.map(({ of }) => `join sandbox_labels ${of} using (${time}, ${id})`).join(' ');
  return `(select ${time}, ${id}
      from sandbox_labels ${first!.of} ${joined}
      where ${walks.map((walk) => walk.where).join(' and ')}
      order by ${time} ${direction}, ${id} ${direction} ${SEPARATE}) as f
    cross join lateral (
      select * from sandboxes own where own.org_id = ${org} and own.id = f.sandbox_id ${SEPARATE}) as s`;
}
