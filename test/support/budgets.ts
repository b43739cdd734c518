import { v7 as uuidv7 } from 'uuid';
import type { Pool } from '../../src/db/pool.js';
import type { Instant } from '../../src/lib/instant.js';
import type { Answer } from './answer.js';
import type { Client } from './client.js';

export const ORGANIZATION = { type: 'organization' };

/** Creates a budget of 10 sandbox-hours of the organization, or with other fields. Returns its answer. */
export async function makeBudget(client: Client, fields: object = {}): Promise<Answer['body']> {
  const { status, body, text } = await client.post('/v1/budgets', {
    name: uuidv7(),
    scope: ORGANIZATION,
    measure: 'sandbox_hours',
    limit: '10',
    ...fields,
  });
  if (status !== 200) throw new Error(`the budget was not made: ${text}`);
  return body;
}

export interface TestRun {
  sandbox: string;
  from: Instant;
  /** Null: the run is open. */
  to: Instant | null;
  /** vCPUs, memory and disk. */
  resources?: readonly [number, number, number];
  key?: string | null;
  keySince?: Instant | null;
}

export async function insertRun(
  pool: Pool,
  { org }: Client,
  { sandbox, from, to, resources = [1, 1024, 0], key = null, keySince = null }: TestRun,
): Promise<void> {
  await pool.query(
    `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason,
       started_by_key, key_since)
     values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)`,
    [org.id, uuidv7(), sandbox, ...resources, from, to, to && 'test', key, keySince],
  );
}
