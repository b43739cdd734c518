import type pg from 'pg';
import type { Pool } from '../../../src/db/pool.js';

/** The state of a database that the checks read, from one snapshot. */
export interface Store {
  sandboxes: Map<string, StoredSandbox>;
  runs: StoredRun[];
  /** The events in the order of their occurrence. */
  events: StoredEvent[];
  pools: StoredPool[];
}

interface StoredPool {
  id: string;
  name: string;
  size: number;
  most: number | null;
  last_failure_message: string | null;
}

export interface StoredSandbox {
  id: string;
  org_id: string;
  name: string;
  status: string;
  ephemeral: boolean;
  run_id: string | null;
  started_at: string | null;
  stopped_at: string | null;
  removed: boolean;
  destroyed: boolean;
  /** The pool that started it. */
  pool_id: string | null;
  /** No create has taken it from its pool. */
  warm: boolean;
  /** The parts that it gets after each start. */
  takes: string[] | null;
}

export interface StoredRun {
  id: string;
  org_id: string;
  sandbox_id: string;
  vcpus: number;
  memory_mib: number;
  started_at: string | null;
  stopped_at: string | null;
  end_reason: string | null;
  handed_over: boolean;
}

export interface StoredEvent {
  org_id: string;
  event_type: string;
  actor_id: string;
  resource_id: string;
  payload: {
    name: string;
    reason?: string;
    run_id?: string | null;
    previous_status?: string;
    status?: string | null;
    started_at?: string | null;
    stopped_at?: string | null;
    source?: string;
  };
}

export async function readStore(pool: Pool): Promise<Store> {
  const client = await pool.connect();
  try {
    await client.query('begin isolation level repeatable read read only');
    const sandboxes = await rowsOf<StoredSandbox>(
      client,
      `select id, org_id, name, status, ephemeral, run_id, started_at, stopped_at,
         removed_at is not null as removed, destroyed_at is not null as destroyed, pool_id, warm, takes
       from sandboxes`,
    );
    const runs = await rowsOf<StoredRun>(
      client,
      'select id, org_id, sandbox_id, vcpus, memory_mib, started_at, stopped_at, end_reason, handed_over from runs',
    );
    const events = await rowsOf<StoredEvent>(
      client,
      `select org_id, event_type, actor_id, resource_id, payload from events
       where category = 'sandbox' order by occurred_at, id`,
    );
    const pools = await rowsOf<StoredPool>(
      client,
      'select id, name, size, most, last_failure_message from pools where removed_at is null',
    );
    await client.query('commit');
    client.release();
    return { sandboxes: new Map(sandboxes.map((row) => [row.id, row])), runs, events, pools };
  } catch (error) {
    client.release(error as Error);
    throw error;
  }
}

/** The sandboxes that are about to change their status. */
export async function readUnsettled(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ text: string }>(
    `select concat_ws(' ', 'not at rest:', id, name, status, status_reason, last_failure_message,
       case when removed_at is not null then 'removed' end, case when warm then 'warm' end, changed_at) as text
     from sandboxes
     where (removed_at is null and status in ('starting', 'stopping'))
       or (removed_at is not null and destroyed_at is null)
       or (removed_at is null and status = 'running' and takes is not null and not warm and not exists (
         select from runs r where r.org_id = sandboxes.org_id and r.id = run_id and r.handed_over))
     limit 5`,
  );
  return rows.map(({ text }) => text);
}

async function rowsOf<Row>(client: pg.PoolClient, text: string): Promise<Row[]> {
  const { rows } = await client.query(text);
  return rows as Row[];
}
