import type { Pool } from '../../db/pool.js';
import { inTransaction } from '../../db/transaction.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { now } from '../../lib/instant.js';
import { forgetWorker, lockWorker, sandboxesOn } from '../../workers/queries.js';
import { recordObservations, type Observation } from './record.js';

/**
 * Gives a worker up whose machine will not come back. What ran there is `failed`, its run closed at the moment it was
 * last seen; its disk is lost, and it can be started on another worker with an empty one. Should the machine come back
 * after all, it destroys what it still holds. Throws ExplainedError while a process acts for the worker.
 * Returns how many sandboxes it had, or undefined when there is no such worker.
 */
export async function removeWorker(pool: Pool, id: string): Promise<number | undefined> {
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
      const sandboxes = await sandboxesOn(tx, id);
      const lost = sandboxes.flatMap(({ org_id: orgId, id: sandboxId, run_id: runId }): Observation[] => {
        if (runId === null) return [];
        return [
          {
            ...{ orgId, sandboxId, runId, occurrence: 'run_lost' },
            ...{ startedAt: null, stoppedAt: null, exit: null },
            reason: 'worker_removed',
            message: `the worker ${worker.name} was removed, and the disk of the sandbox with it`,
          },
        ];
      });
      await recordObservations({ now }, tx, lost);
      await forgetWorker(tx, id, now());
      return sandboxes.length;
    },
    { unhurried: true },
  );
}
