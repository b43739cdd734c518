import type pg from 'pg';
import type { Pool } from '../../../src/db/pool.js';

/** The state of a database that the checks read, from one snapshot. */
export interface Store {
  sandboxes: Map<string, StoredSandbox>;
  runs: StoredRun[];
  /** The events in the order of their occurrence. */
  events: StoredEvent[];
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
  };
}

export async function readStore(pool: Pool): Promise<Store> {
  const client = await pool.connect();
  try {
    await client.query('begin isolation level repeatable read read only');
    const sandboxes = await rowsOf<StoredSandbox>(
      client,
      `select id, org_id, name, status, ephemeral, run_id, started_at, stopped_at,
         removed_at is not null as removed, destroyed_at is not null as destroyed
       from sandboxes`,
    );
    const runs = await rowsOf<StoredRun>(
      client,
      'select id, org_id, sandbox_id, vcpus, memory_mib, started_at, stopped_at, end_reason from runs',
    );
    const events = await rowsOf<StoredEvent>(
      client,
      `select org_id, event_type, actor_id, resource_id, payload from events
       where category = 'sandbox' order by occurred_at, id`,
    );
    await client.query('commit');
    client.release();
    return { sandboxes: new Map(sandboxes.map((row) => [row.id, row])), runs, events };
  } catch (error) {
    client.release(error as Error);
    throw error;
  }
}

/** Whether no sandbox is about to change its status. */
export async function isAtRest(pool: Pool): Promise<boolean> {
  const { rowCount } = await pool.query(
    `select from sandboxes
     where (removed_at is null and status in ('starting', 'stopping'))
       or (removed_at is not null and destroyed_at is null)
     limit 1`,
  );
  return rowCount === 0;
}

async function rowsOf<Row>(client: pg.PoolClient, text: string): Promise<Row[]> {
  const { rows } = await client.query(text);
  return rows as Row[];
}
