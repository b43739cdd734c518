import type pg from 'pg';
import { ExplainedError } from '../../lib/explained-error.js';

/** A pooler may by chance give a client the same connection for some statements. */
const ROUNDS = 5;

/**
 * Throws ExplainedError for a pooler that moves a session between connections, such as PgBouncer in transaction mode.
 * There another client gets the connection of an idle one, or a client finds itself on another connection.
 */
export async function checkPooler(make: () => pg.Client): Promise<void> {
  const [idle, busy] = [make(), make()];
  try {
    await idle.connect();
    await busy.connect();
    const before = await backendOf(idle);
    for (let round = 0; round < ROUNDS; round += 1) {
      await busy.query('begin').catch((error: unknown) => {
        if (/statement pooling/.test((error as Error).message)) throw notASession();
        throw error;
      });
      const shared = (await backendOf(busy)) === before || (await backendOf(idle)) !== before;
      await busy.query('rollback');
      if (shared) throw notASession();
    }
  } finally {
    for (const client of [idle, busy]) void client.end().catch(() => undefined);
  }
}

async function backendOf(client: pg.Client): Promise<number> {
  const { rows } = await client.query<{ pid: number }>('select pg_backend_pid() as pid');
  return rows[0]!.pid;
}

/** PgBouncer refuses settings in the start of a connection unless it is told to pass over them. */
export function explainStart(error: unknown): unknown {
  const { message } = error as Error;
  if (!/unsupported startup parameter/.test(message)) return error;
  return new ExplainedError(
    `the pooler of the database URL refuses the settings of Sandkeep (${message}): for PgBouncer set "pool_mode = session" and "ignore_startup_parameters = options", or name PostgreSQL itself in the URL`,
    { cause: error },
  );
}

function notASession(): ExplainedError {
  return new ExplainedError(
    'the database URL leads to a pooler in transaction or statement mode, such as PgBouncer with "pool_mode = transaction": roles, prepared statements, notifications and locks of Sandkeep belong to a session. Set "pool_mode = session", or name PostgreSQL itself in the URL',
  );
}
