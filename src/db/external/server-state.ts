import type pg from 'pg';

export interface ServerState {
  /** The process that serves the connection. A pooler gives clients another number at the start of the connection. */
  pid: number;
  /** A standby, or a server that refuses writes. */
  readOnly: boolean;
  /** All servers of a cluster share it. Null: the server does not tell. */
  system: string | null;
  /** Raised by each promotion. Null: a standby, or the server does not tell. */
  timeline: number | null;
}

/**
 * The timeline is that of the log position. The control file has the new one only after the first checkpoint that
 * follows a promotion.
 */
const WHOLE = `
  select pg_backend_pid() as pid, pg_is_in_recovery() or current_setting('transaction_read_only') = 'on' as read_only,
    (select system_identifier::text from pg_control_system()) as system,
    case when not pg_is_in_recovery() then ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int end as timeline`;

/** Some hosted servers have no log positions, or refuse the functions. */
const PLAIN = `
  select pg_backend_pid() as pid, pg_is_in_recovery() or current_setting('transaction_read_only') = 'on' as read_only,
    null as system, null as timeline`;

interface Row extends pg.QueryResultRow {
  pid: number;
  read_only: boolean;
  system: string | null;
  timeline: number | null;
}

export async function readServerState(client: pg.ClientBase): Promise<ServerState> {
  const { pid, read_only: readOnly, system, timeline } = await readRow(client);
  return { pid, readOnly, system, timeline };
}

async function readRow(client: pg.ClientBase): Promise<Row> {
  // A promotion during the first statement fails it with 55000.
  for (const statement of [WHOLE, WHOLE]) {
    try {
      return (await client.query<Row>(statement)).rows[0]!;
    } catch (error) {
      if (!/^(0A000|42501|42883|55000)$/.test((error as { code?: string }).code ?? '')) throw error;
    }
  }
  return (await client.query<Row>(PLAIN)).rows[0]!;
}
