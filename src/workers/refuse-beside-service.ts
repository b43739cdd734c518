import type { Sql } from '../db/pool.js';
import { ExplainedError } from '../lib/explained-error.js';
import { liveWorkers } from './queries.js';

/** An external database has no owner; a valid lease shows a service that runs, or was killed seconds ago. */
export async function refuseBesideService(sql: Sql): Promise<void> {
  const [name] = await liveWorkers(sql);
  if (name === undefined) return;
  throw new ExplainedError(
    `a service runs on this database (worker ${name}): stop it, then repeat the command; after a kill, wait ten seconds`,
  );
}
