import type { Sql } from '../db/pool.js';
import { Conditions } from '../lib/conditions.js';
import type { Instant } from '../lib/instant.js';
import { SANDBOX_COLUMNS, type SandboxRow } from './queries.js';
import type { SandboxStatus } from './schema.js';

export interface SandboxFilter {
  /** All must match. */
  labels: [key: string, value: string][];
  /** Any of these; all when empty. */
  statuses: SandboxStatus[];
  namePrefix: string | undefined;
  /** Both exclusive. */
  createdAfter: Instant | undefined;
  createdBefore: Instant | undefined;
}

/** The orders a list can have: the keyset (a column and its tie-breaker) and its direction. */
const SORTS = {
  '-created_at': { column: 'created_at', type: 'timestamptz', direction: 'desc', after: '<' },
  created_at: { column: 'created_at', type: 'timestamptz', direction: 'asc', after: '>' },
  name: { column: 'name', type: 'text', direction: 'asc', after: '>' },
} as const;
export type Sort = keyof typeof SORTS;

/**
 * Without labels the list walks the sandboxes in order. With labels it walks those of the first label, whose index has
 * the same order, and probes for the others: `offset 0` keeps the planner from turning a probe into a join
 * (docs/decisions/0004-labels-in-a-side-table.md).
 */
export async function listSandboxes(
  sql: Sql,
  orgId: string,
  filter: SandboxFilter,
  sort: Sort,
  after: readonly [string, string] | undefined,
  limit: number,
): Promise<SandboxRow[]> {
  const { column, type, direction, after: comparison } = SORTS[sort];
  const where = new Conditions();
  const [first, ...others] = filter.labels;
  const walked = first && sort !== 'name' ? { time: 'f.created_at', id: 'f.sandbox_id' } : undefined;
  const key = walked?.time ?? `s.${column}`;
  const id = walked?.id ?? 's.id';
  where.add((p) => `s.org_id = ${p(orgId)}`).add(() => 's.removed_at is null');
  if (first)
    where.add((p) => `f.org_id = ${p(orgId)} and f.key = ${p(first[0])} and f.value = ${p(first[1])}`);
  for (const [label, value] of others) {
    where.add(
      (p) => `exists (
        select from sandbox_labels l
        where l.org_id = f.org_id and l.key = ${p(label)} and l.value = ${p(value)}
          and l.created_at = f.created_at and l.sandbox_id = f.sandbox_id
        offset 0)`,
    );
  }
  if (filter.statuses.length > 0) where.add((p) => `s.status = any (${p(filter.statuses)}::text[])`);
  if (filter.namePrefix !== undefined) where.add((p) => `starts_with(s.name, ${p(filter.namePrefix)})`);
  const time = walked?.time ?? 's.created_at';
  if (filter.createdAfter !== undefined) where.add((p) => `${time} > ${p(filter.createdAfter)}::timestamptz`);
  if (filter.createdBefore !== undefined)
    where.add((p) => `${time} < ${p(filter.createdBefore)}::timestamptz`);
  if (after)
    where.add((p) => `(${key}, ${id}) ${comparison} (${p(after[0])}::${type}, ${p(after[1])}::uuid)`);
  const from = first
    ? 'sandbox_labels f join sandboxes s on s.org_id = f.org_id and s.id = f.sandbox_id'
    : 'sandboxes s';
  const { rows } = await sql.query<SandboxRow & Record<string, unknown>>(
    `select ${SANDBOX_COLUMNS.replace(/\w+/g, 's.$&')} from ${from}
     where ${where.text}
     order by ${key} ${direction}, ${id} ${direction}
     limit ${where.parameter(limit)}`,
    where.values,
  );
  return rows;
}
