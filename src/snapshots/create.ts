import { readerOf } from '../access/reader.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { announceSnapshot } from '../db/changes.js';
import { violatedConstraint, type Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import type { Writer } from '../idempotency/keyed.js';
import { inWrite } from '../idempotency/write.js';
import { checkLabels } from '../lib/labels.js';
import { newId } from '../lib/uuid.js';
import { lockQuotas } from '../quotas/queries.js';
import { reserve } from '../quotas/reserve.js';
import { withKeyLabels } from '../sandboxes/admission/key-labels.js';
import { lockSandbox } from '../sandboxes/queries.js';
import { NAME_RULE, SANDBOX_NAME } from '../spec/names.js';
import { presentOperation } from './present.js';
import { findSnapshot, insertSnapshot } from './queries.js';
import type { CreateSnapshotRequest, SnapshotOperation } from './schema.js';
import { refuseUnfinished, sourceOf } from './source.js';
import { refuseWithoutSnapshots } from './supported.js';

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/**
 * Admits a capture. Returns before it begins: the worker of the engine carries it out. `templateId`: the build that
 * needs the snapshot, which no caller finds.
 */
export async function createSnapshot(
  ctx: Context,
  caller: Writer,
  request: CreateSnapshotRequest,
  templateId: string | null = null,
): Promise<SnapshotOperation> {
  refuseWithoutSnapshots(ctx.runtime);
  const { name, sandbox_id: sandboxId, force = false, record_integrity = false } = request;
  const labels = withKeyLabels(caller, request.labels) ?? {};
  checkRequest(request, labels);
  const { orgId, actor } = caller;
  const id = newId();
  try {
    return await inWrite(ctx, caller, async (tx) => {
      const requiredLabels = caller.access.labels;
      const sandbox = await lockSandbox(tx, orgId, { id: sandboxId, requiredLabels });
      if (!sandbox) throw new ApiError('sandbox_not_found');
      const source = await sourceOf(ctx, tx, sandbox, (message) => {
        // No 409: clients read each one of this operation as a name that is taken.
        throw new ApiError('invalid_request', message, { field: 'sandbox_id', status: sandbox.status });
      });
      // Serializes the requests of the organization, also without limits.
      await lockQuotas(tx, orgId, 'exclusive');
      await reserve(ctx, tx, caller, { snapshot: true });
      const replacedId = await findReplaced(tx, caller, name, force);
      await refuseUnfinished(tx, orgId, 'snapshot');
      const at = ctx.now();
      const row = await insertSnapshot(tx, {
        ...source.columns,
        id,
        purpose: 'snapshot',
        fork_count: null,
        name,
        labels,
        replaces: force,
        replaced_id: replacedId,
        record_integrity,
        actor,
        template_id: templateId,
        created_at: at,
      });
      await recordEvent(tx, {
        orgId,
        type: 'snapshot_requested',
        actor,
        resourceId: id,
        at,
        payload: { snapshot_id: id, name, sandbox_id: sandbox.id, sandbox_name: sandbox.name },
      });
      await announceSnapshot(tx, id);
      return presentOperation(row);
    });
  } catch (error) {
    const constraint = violatedConstraint(error);
    if (constraint === 'snapshots_name') refuseName(name);
    if (constraint !== 'snapshots_replacement') throw error;
    throw new ApiError(
      'snapshot_already_exists',
      `another snapshot with the name "${name}" is being made: wait for it, or choose another name`,
      { name },
    );
  }
}

function checkRequest({ name, dest_dir }: CreateSnapshotRequest, labels: Record<string, string>): void {
  if (dest_dir != null) {
    throw new ApiError(
      'invalid_request',
      'dest_dir: the service keeps snapshots itself, and writes none to volumes; leave it out',
      { field: 'dest_dir' },
    );
  }
  checkNames(name, labels);
}

export function checkNames(name: string, labels: Record<string, string>): void {
  if (!SANDBOX_NAME.test(name)) throw new ApiError('invalid_request', NAME_RULE, { field: 'name' });
  // Clients take it for an id.
  if (UUID.test(name)) {
    throw new ApiError('invalid_request', 'name must not have the form of a UUID', { field: 'name' });
  }
  const badLabel = checkLabels(labels);
  if (badLabel) throw new ApiError('invalid_request', badLabel.message, { field: `labels.${badLabel.key}` });
}

/** The ready snapshot with the name. A key that is narrowed to labels replaces none that it does not see. */
async function findReplaced(tx: Sql, caller: Writer, name: string, force: boolean): Promise<string | null> {
  const taken = await findSnapshot(tx, { orgId: caller.orgId, labels: {} }, { name });
  if (!taken) return null;
  const isSeen = (await findSnapshot(tx, readerOf(caller), { id: taken.id })) !== undefined;
  if (!force || !isSeen) refuseName(name);
  return taken.id;
}

export function refuseName(name: string): never {
  throw new ApiError('snapshot_already_exists', `a snapshot with the name "${name}" already exists`, {
    name,
  });
}
