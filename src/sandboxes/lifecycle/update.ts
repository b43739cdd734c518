import { isDeepStrictEqual } from 'node:util';
import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { refuseLabelsOverBudget } from '../../budgets/check.js';
import { announceChange } from '../../db/changes.js';
import { violatedConstraint } from '../../db/pool.js';
import type { EventSql } from '../../db/transaction.js';
import { ApiError } from '../../http/errors.js';
import type { Writer } from '../../idempotency/keyed.js';
import { inWrite } from '../../idempotency/write.js';
import type { Instant } from '../../lib/instant.js';
import { checkLabels } from '../../lib/labels.js';
import { withKeyLabels } from '../admission/key-labels.js';
import { isSlug, NAME_RULE, SANDBOX_NAME, SLUG_RULE } from '../../spec/names.js';
import {
  lockSandbox,
  replaceLabels,
  updateSandboxRow,
  updateSpecs,
  type LockedSandbox,
  type SandboxKey,
} from '../queries.js';
import { refuseTaken } from './refusals.js';
import { presentSandbox, type SandboxResponse } from '../row.js';
import type { UpdateSandboxRequest } from '../../spec/update-schema.js';

/** Changes the name, slug or labels in any status. Null and missing fields stay. */
export async function updateSandbox(
  ctx: Context,
  caller: Writer,
  key: SandboxKey,
  request: UpdateSandboxRequest,
): Promise<SandboxResponse> {
  if (request.name != null && !SANDBOX_NAME.test(request.name)) {
    throw new ApiError('invalid_request', NAME_RULE, { field: 'name' });
  }
  if (request.slug != null && !isSlug(request.slug)) {
    throw new ApiError('invalid_request', SLUG_RULE, { field: 'slug' });
  }
  const labels = request.labels == null ? undefined : withKeyLabels(caller, request.labels);
  const badLabel = checkLabels(labels ?? {});
  if (badLabel) throw new ApiError('invalid_request', badLabel.message, { field: `labels.${badLabel.key}` });
  try {
    return await inWrite(ctx, caller, async (tx, batch) => {
      const sandbox = await lockSandbox(tx, caller.orgId, key);
      if (!sandbox) throw new ApiError('sandbox_not_found');
      const at = ctx.now();
      const renamed = await rename(tx, caller, sandbox, request, at);
      const relabelled = await relabel(ctx, tx, caller, { sandbox: renamed ?? sandbox, labels, at });
      const row = relabelled ?? renamed;
      if (row) await announceChange(batch, sandbox.id);
      return presentSandbox(row ?? sandbox, caller.access);
    });
  } catch (error) {
    refuseTaken(violatedConstraint(error), request);
    throw error;
  }
}

async function rename(
  tx: EventSql,
  { orgId, actor }: Writer,
  sandbox: LockedSandbox,
  request: UpdateSandboxRequest,
  at: Instant,
): Promise<LockedSandbox | undefined> {
  const { id, name, slug } = sandbox;
  const before = { name, slug };
  const after = { name: request.name ?? name, slug: request.slug ?? slug };
  if (isDeepStrictEqual(before, after)) return undefined;
  await updateSandboxRow(tx, orgId, id, after, at);
  const payload = { sandbox_id: id, before, after };
  await recordEvent(tx, { orgId, type: 'sandbox_renamed', actor, resourceId: id, at, payload });
  return { ...sandbox, ...after };
}

interface Relabelling {
  sandbox: LockedSandbox;
  labels: Record<string, string> | undefined;
  at: Instant;
}

/** Undefined: no change. Usage counts under the new labels from now on. */
async function relabel(
  ctx: Context,
  tx: EventSql,
  caller: Writer,
  { sandbox, labels, at }: Relabelling,
): Promise<LockedSandbox | undefined> {
  const { orgId, actor } = caller;
  const { id, spec, run_spec } = sandbox;
  if (labels === undefined || isDeepStrictEqual(labels, spec?.labels)) return undefined;
  if (!spec) {
    throw new ApiError(
      'invalid_request',
      'the sandbox was imported without a specification: it has no labels',
      {
        field: 'labels',
      },
    );
  }
  // The next start of a sandbox at rest is checked with the labels that it has then.
  if (isStarted(sandbox))
    await refuseLabelsOverBudget(ctx, tx, caller, { at, before: spec.labels, after: labels });
  const change = { spec: { ...spec, labels }, run_spec: run_spec && { ...run_spec, labels } };
  await updateSpecs(tx, orgId, id, change, at);
  await replaceLabels(tx, sandbox, labels);
  const payload = { sandbox_id: id, before: { labels: spec.labels }, after: { labels } };
  await recordEvent(tx, { orgId, type: 'sandbox_relabelled', actor, resourceId: id, at, payload });
  return { ...sandbox, ...change };
}

/** It runs or was admitted to run, also after a stop that is in progress. A pause may fail, and then it runs on. */
function isStarted({ status, next_run, pausing }: LockedSandbox): boolean {
  return (
    status === 'starting' || status === 'running' || (status === 'stopping' && (next_run !== null || pausing))
  );
}
