import type { Sql } from '../../src/db/pool.js';

interface WorkerRow {
  runtime?: string;
  capabilities?: Iterable<string>;
  /** It takes new runs for so long. */
  aliveSeconds?: number;
}

/** Adds a worker of one vCPU and one MiB that no process serves. Returns its id. */
export async function insertWorker(
  db: Sql,
  { runtime = 'simulated', capabilities = [], aliveSeconds = 0 }: WorkerRow = {},
): Promise<string> {
  const { rows } = await db.query<{ id: string }>(
    `insert into workers (id, runtime, name, capabilities, vcpus, memory_mib, holder, epoch, expires_at, registered_at)
     values (gen_random_uuid(), $1, 'away', $2, 1, 1, 'nobody', 1, now() + $3 * interval '1 second', now())
     returning id`,
    [runtime, [...capabilities], aliveSeconds],
  );
  return rows[0]!.id;
}
