import { RECONCILER } from '../audit/events/actor.js';
import type { EventSql } from '../db/transaction.js';
import { now } from '../lib/instant.js';
import { loseSnapshots } from '../snapshots/purge.js';
import { recordDeleted } from './delete.js';
import { endBuild } from './end.js';
import { deleteLayersOn } from './layer-queries.js';
import { hasEnded } from './state.js';
import { detachSandboxes, lockTemplatesOn } from './work-queries.js';

const WORKER_REMOVED = {
  code: 'engine_failed',
  message: 'the worker of the build was removed: repeat the request',
};

/**
 * The operator gives a worker up, and the templates and snapshots on its engine. Its builds end. The transaction has
 * locked its sandboxes.
 */
export async function loseDisks(tx: EventSql, workerId: string): Promise<void> {
  const at = now();
  for (const row of await lockTemplatesOn(tx, workerId)) {
    if (hasEnded(row.status)) await recordDeleted(tx, row, RECONCILER, at);
    else await endBuild(tx, row, WORKER_REMOVED, RECONCILER, at);
  }
  await detachSandboxes(tx, workerId);
  await deleteLayersOn(tx, workerId);
  await loseSnapshots(tx, workerId);
}
