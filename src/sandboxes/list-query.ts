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

export async function listSandboxes(
  sql: Sql,
  orgId: string,
  filter: SandboxFilter,
  sort: Sort,
  after: readonly [string, string] | undefined,
  limit: number,
): Promise<SandboxRow[]> {
  const { column, type, direction, after: comparison } = SORTS[sort];
  const where = new Conditions().add((p) => `s.org_id = ${p(orgId)}`).add(() => 's.removed_at is null');
  for (const [key, value] of filter.labels) {
    // `offset 0` keeps the planner from joining: it probes the label's index for each row it walks by instead.
    where.add(
      (p) => `exists (
        select from sandbox_labels l
        where l.org_id = s.org_id and l.key = ${p(key)} and l.value = ${p(value)}
          and l.created_at = s.created_at and l.sandbox_id = s.id
        offset 0)`,
    );
  }
  if (filter.statuses.length > 0) where.add((p) => `s.status = any (${p(filter.statuses)}::text[])`);
  if (filter.namePrefix !== undefined) where.add((p) => `starts_with(s.name, ${p(filter.namePrefix)})`);
  if (filter.createdAfter !== undefined)
    where.add((p) => `s.created_at > ${p(filter.createdAfter)}::timestamptz`);
  if (filter.createdBefore !== undefined)
    where.add((p) => `s.created_at < ${p(filter.createdBefore)}::timestamptz`);
  if (after) {
    where.add((p) => `(s.${column}, s.id) ${comparison} (${p(after[0])}::${type}, ${p(after[1])}::uuid)`);
  }
  const { rows } = await sql.query<SandboxRow & Record<string, unknown>>(
    `select ${SANDBOX_COLUMNS} from sandboxes s
     where ${where.text}
     order by s.${column} ${direction}, s.id ${direction}
     limit ${where.parameter(limit)}`,
    where.values,
  );
  return rows;
}
