import type { Pool } from '../../db/pool.js';
import { inTransaction, type EventSql } from '../../db/transaction.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { now } from '../../lib/instant.js';
import { deleteWorker, lockWorker } from '../../workers/queries.js';
import { detachSandboxes, lockSandboxesOn } from './queries.js';
import { recordMemoryLost } from './record-pause.js';
import { recordObservations, type Observation } from './record.js';

const MEMORY_LOST = 'its worker was removed, and with it the disk and the memory of its pause';

/**
 * Gives up a worker whose machine does not return. Its running sandboxes become `failed`; their runs end at the time
 * they were last seen. Their disks are lost, and so is what `lose` gives up in the same transaction. Throws
 * ExplainedError while a process holds the lease. Returns the number of its sandboxes.
 */
export async function removeWorker(
  pool: Pool,
  id: string,
  lose: (tx: EventSql, workerId: string) => Promise<void>,
): Promise<number | undefined> {
  return inTransaction(
    pool,
    async (tx) => {
      const worker = await lockWorker(tx, id);
      if (!worker) return undefined;
      if (worker.alive) {
        throw new ExplainedError(
          `a process acts for the worker ${worker.name}: stop it first, and wait until "sandkeep worker list" says it is away`,
        );
      }
      const sandboxes = await lockSandboxesOn(tx, id);
      const lost = sandboxes.flatMap(({ org_id: orgId, id: sandboxId, run_id: runId }): Observation[] => {
        if (runId === null) return [];
        return [
          {
            orgId,
            sandboxId,
            runId,
            occurrence: 'run_lost',
            startedAt: null,
            stoppedAt: null,
            exit: null,
            reason: 'worker_removed',
            message: `the worker ${worker.name} was removed, and the disk of the sandbox with it`,
          },
        ];
      });
      await recordObservations({ now }, tx, lost);
      const paused = sandboxes.flatMap(({ org_id: orgId, id: sandboxId, is_paused: isPaused }) =>
        isPaused ? [{ orgId, sandboxId }] : [],
      );
      await recordMemoryLost(tx, paused, now(), MEMORY_LOST);
      await detachSandboxes(tx, id, now());
      await lose(tx, id);
      await deleteWorker(tx, id);
      return sandboxes.length;
    },
    { unhurried: true },
  );
}
