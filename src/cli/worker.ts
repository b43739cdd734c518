import { Command } from 'commander';
import { validate as isUuid } from 'uuid';
import { ExplainedError } from '../lib/explained-error.js';
import { shortInstant } from '../lib/instant.js';
import { countWaiting, type WaitingTotals } from '../sandboxes/placement/wait-queries.js';
import { removeWorker } from '../sandboxes/reconcile/remove-worker.js';
import { loseDisks } from '../templates/lose.js';
import { listWorkers, type WorkerRow } from '../workers/queries.js';
import { databaseCommand, print, tableCommand, withDatabase, type CommonOptions } from './command.js';
import { table } from './table.js';

export function workerCommand(): Command {
  return new Command('worker')
    .description('workers: the engines that run sandboxes')
    .addCommand(listCommand())
    .addCommand(removeCommand());
}

function listCommand(): Command {
  return tableCommand('list')
    .description('list workers: capacity, load and waiting starts')
    .action(async (options: CommonOptions) => {
      const [workers, waiting] = await withDatabase(options, 'worker list', async (pool) => [
        await listWorkers(pool, null),
        await countWaiting(pool),
      ]);
      const view = workers.map((worker) => ({
        ...worker,
        expires_at: shortInstant(worker.expires_at),
        ...waitingFor(worker, waiting),
      }));
      const share = (used: number, of: number | null) => (of === null ? `${used} / any` : `${used} / ${of}`);
      const rows = view.map((worker) => [
        worker.name,
        worker.runtime,
        worker.id,
        share(worker.used_vcpus, worker.vcpus),
        share(worker.used_memory_mib, worker.memory_mib),
        share(worker.used_disk_mib, worker.disk_mib),
        waitText(worker),
        worker.alive ? 'live' : `away since ${worker.expires_at}`,
      ]);
      const head = ['NAME', 'RUNTIME', 'ID', 'VCPUS', 'MEMORY MiB', 'DISK MiB', 'WAITING', 'STATE'];
      print(options, view, table(head, rows, { ...options, optional: ['DISK MiB'] }));
    });
}

interface Waiting {
  waiting: number;
  waiting_vcpus: number;
  waiting_memory_mib: number;
}

/** The starts that a worker could take: their disk is on it, or they have none yet. */
function waitingFor({ id, runtime }: WorkerRow, all: readonly WaitingTotals[]): Waiting {
  const own = all.filter((each) => each.runtime === runtime && (each.worker_id ?? id) === id);
  const total = (column: 'runs' | 'vcpus' | 'memory_mib') => own.reduce((sum, each) => sum + each[column], 0);
  return { waiting: total('runs'), waiting_vcpus: total('vcpus'), waiting_memory_mib: total('memory_mib') };
}

function waitText({ waiting, waiting_vcpus, waiting_memory_mib }: Waiting): string {
  if (waiting === 0) return 'none';
  return `${waiting} for ${waiting_vcpus} vCPU, ${waiting_memory_mib} MiB`;
}

function removeCommand(): Command {
  return databaseCommand('remove')
    .description(
      'remove a worker that will not return: its running sandboxes fail, and its disks, snapshots and templates are lost',
    )
    .argument('<id>', 'id of the worker, as "sandkeep worker list" shows it')
    .action(async (id: string, options: CommonOptions) => {
      const unknown = `there is no worker with the id "${id}": see "sandkeep worker list"`;
      if (!isUuid(id)) throw new ExplainedError(unknown);
      const count = await withDatabase(options, 'worker remove', (pool) => removeWorker(pool, id, loseDisks));
      if (count === undefined) throw new ExplainedError(unknown);
      print(options, { id, sandboxes: count }, `the worker is removed; ${count} sandboxes were on it`);
    });
}
