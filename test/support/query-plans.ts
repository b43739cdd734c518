import pg from 'pg';
import type { Sql } from '../../src/db/pool.js';
import { READERS } from '../../src/db/pipelined-reads.js';
import { REQUEST_ROLE } from '../../src/db/request-role.js';

/** A statement that was sent to the database. */
export interface Sent {
  text: string;
  values: readonly unknown[];
  /** Sent over a connection that serves requests. */
  serving: boolean;
  /** Sent over a connection that short reads share. */
  shared: boolean;
}

/** The fields of an `explain` node that are used. The counts are for each loop. */
interface PlanNode {
  'Node Type': string;
  'Relation Name'?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Index Recheck'?: number;
  'Shared Hit Blocks': number;
  'Shared Read Blocks': number;
  Plans?: PlanNode[];
}

export interface Cost {
  /** Rows read from indexes, returned or not. */
  rows: number;
  /** The largest number of rows in one sort. */
  sorted: number;
  /** Pages of 8 KiB. */
  buffers: number;
  /** Tables with a sequential scan. */
  walked: string[];
  plan: PlanNode;
}

/** Custom plans are for the given values, generic plans for any values. */
export const PLANNED = ['force_custom_plan', 'force_generic_plan'] as const;

const READ = /^\s*(select|with)\b/i;
/** Sets the organization of a connection, or asks the server of a new connection for its state. */
const OF_CONNECTION = /set_config|pg_control_system/;

/** Every read that the service sends during `work`, over any connection. Nothing else may run meanwhile. */
export async function sentDuring(work: () => Promise<unknown>): Promise<Sent[]> {
  const sent: Sent[] = [];
  const { prototype } = pg.Client as unknown as {
    prototype: { query: (this: Connected, ...args: unknown[]) => unknown };
  };
  const { query } = prototype;
  prototype.query = function (...args) {
    const [first, second] = args as [string | { text?: string; values?: unknown[] }, unknown];
    const { text = '', values = Array.isArray(second) ? second : [] } =
      typeof first === 'string' ? { text: first } : first;
    const serving = this.connectionParameters.options?.includes(`role=${REQUEST_ROLE}`) === true;
    const shared = this.connectionParameters.application_name === READERS;
    if (READ.test(text) && !OF_CONNECTION.test(text)) sent.push({ text, values, serving, shared });
    return query.apply(this, args);
  };
  try {
    await work();
  } finally {
    prototype.query = query;
  }
  return sent;
}

interface Connected {
  connectionParameters: { options?: string; application_name?: string };
}

/** Repeats the statement with the original role, in the session `sql` of the owner, and returns its cost. */
export async function costOf(
  sql: Sql,
  { text, values, serving }: Sent,
  orgId: string,
  planned: (typeof PLANNED)[number],
): Promise<Cost> {
  await sql.query(
    "select set_config('plan_cache_mode', $1, false), set_config('sandkeep.org_id', $2, false)",
    [planned, orgId],
  );
  if (serving) await sql.query(`set role ${REQUEST_ROLE}`);
  try {
    await sql.query(`prepare looked_at as ${text}`);
    const given = values.length === 0 ? '' : `(${values.map(literal).join(', ')})`;
    const { rows } = await sql.query<{ 'QUERY PLAN': [{ Plan: PlanNode }] }>(
      `explain (analyze, buffers, format json) execute looked_at${given}`,
    );
    await sql.query('deallocate looked_at');
    return summed(rows[0]!['QUERY PLAN'][0].Plan);
  } finally {
    await sql.query('reset role');
  }
}

function summed(plan: PlanNode): Cost {
  const cost: Cost = {
    rows: 0,
    sorted: 0,
    walked: [],
    plan,
    buffers: plan['Shared Hit Blocks'] + plan['Shared Read Blocks'],
  };
  const look = (node: PlanNode) => {
    const [type, loops, inner = []] = [node['Node Type'], node['Actual Loops'], node.Plans];
    if (type === 'Seq Scan' && loops > 0) cost.walked.push(node['Relation Name']!);
    else if (type.endsWith('Scan') && (node['Relation Name'] !== undefined || type === 'Bitmap Index Scan')) {
      const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0);
      cost.rows += (node['Actual Rows'] + removed) * loops;
    }
    if (type === 'Sort' || type === 'Incremental Sort') {
      cost.sorted = Math.max(cost.sorted, inner[0]!['Actual Rows']);
    }
    inner.forEach(look);
  };
  look(plan);
  return cost;
}

/** A literal without a type, as the driver sends it. */
export function literal(value: unknown): string {
  if (value === null || value === undefined) return 'null';
  if (Array.isArray(value)) {
    const items = value.map((item) => `"${String(item).replaceAll(/["\\]/g, '\\$&')}"`);
    return pg.escapeLiteral(`{${items.join(',')}}`);
  }
  if (Buffer.isBuffer(value)) return `'\\x${value.toString('hex')}'`;
  if (typeof value === 'object') return pg.escapeLiteral(JSON.stringify(value));
  return pg.escapeLiteral(`${value as string | number | boolean}`);
}
