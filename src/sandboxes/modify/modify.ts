import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { announceChange } from '../../db/changes.js';
import { inTransaction } from '../../db/transaction.js';
import { ApiError } from '../../http/errors.js';
import type { Writer } from '../../idempotency/keyed.js';
import { inWrite } from '../../idempotency/write.js';
import { openSecrets, replaceSecretValues } from '../../secrets/secrets.js';
import type { Capability } from '../../spec/capabilities.js';
import { showSecrets } from '../../spec/show-secrets.js';
import { lockSandbox, updateSpecs, type LockedSandbox, type SandboxKey } from '../queries.js';
import { entryOf, fromApply, planModification, type Modification, type Planned } from './plan.js';
import type { ApplyRequest, ModificationPlan } from './schema.js';

const SECRETS: readonly Capability[] = ['secrets'];

/** Changes the secrets of a sandbox. Those of one that runs take effect before the answer. */
export async function modifySandbox(
  ctx: Context,
  caller: Writer,
  key: SandboxKey,
  request: ApplyRequest,
): Promise<ModificationPlan> {
  const { orgId, actor } = caller;
  let live: string | undefined;
  const answer = await inWrite(ctx, caller, async (tx, batch) => {
    const sandbox = await lockSandbox(tx, orgId, key);
    if (!sandbox) throw new ApiError('sandbox_not_found');
    refuseMoving(sandbox);
    const { plan, gated } = planFor(ctx, sandbox, fromApply(request));
    const [conflict] = plan.conflicts;
    if (conflict) {
      const { field, message } = conflict;
      if (plan.policy === 'no_restart') throw new ApiError('modification_refused', message, { field });
      throw new ApiError('modification_unsupported', message, { field });
    }
    const at = ctx.now();
    const { id, spec, run_spec } = specsOf(sandbox);
    const demands = [...new Set([...run_spec.demands, ...(gated.secrets.length > 0 ? SECRETS : [])])];
    const shown = showSecrets({
      entries: gated.secrets.map((secret) => entryOf({ name: secret.name }, secret)),
    });
    await updateSpecs(
      tx,
      orgId,
      id,
      {
        spec: { ...spec, network: { ...spec.network, secrets: shown } },
        run_spec: { ...run_spec, gated, demands },
      },
      at,
    );
    const values = Object.fromEntries(
      (request.secrets ?? []).flatMap(({ name, value }) => (value === undefined ? [] : [[name, value]])),
    );
    await replaceSecretValues(
      tx,
      ctx.keyring,
      { orgId, sandboxId: id },
      values,
      request.secrets_remove ?? [],
    );
    const payload = {
      sandbox_id: id,
      changes: plan.changes.map(({ name, change, allow_hosts }) => ({ name, change, allow_hosts })),
    };
    if (plan.changes.length > 0)
      await recordEvent(tx, { orgId, type: 'sandbox_secrets_changed', actor, resourceId: id, at, payload });
    await announceChange(batch, id);
    if (isRunning(sandbox)) live = id;
    return { ...describe(sandbox, { plan, gated }), applied: true };
  });
  if (live !== undefined) await applyLive(ctx, orgId, live);
  return answer;
}

export async function planFrom(
  ctx: Context,
  orgId: string,
  key: SandboxKey,
  modification: Modification,
): Promise<ModificationPlan> {
  const sandbox = await lockSandbox(ctx.pool, orgId, key);
  if (!sandbox) throw new ApiError('sandbox_not_found');
  return describe(sandbox, planFor(ctx, sandbox, modification));
}

function planFor(ctx: Context, sandbox: LockedSandbox, modification: Modification): Planned {
  const { networkEnabled, demands, gated } = specsOf(sandbox).run_spec;
  const planned = planModification(modification, gated ?? undefined, isRunning(sandbox));
  // Admission has checked the engine for the first secrets of a create only.
  if (planned.gated.secrets.length > 0 && !demands.includes('secrets')) {
    if (!networkEnabled)
      throw new ApiError('modification_unsupported', 'the sandbox has no network, so a secret has no use');
    if (sandbox.runtime !== ctx.runtime.name || !ctx.runtime.capabilities.has('secrets')) {
      const message = `the ${sandbox.runtime} runtime cannot put secrets into requests here`;
      throw new ApiError('modification_unsupported', message);
    }
  }
  return planned;
}

/** A start that is on its way has read the secrets, or has not. Clients send the change again. */
function refuseMoving({ status }: LockedSandbox): void {
  if (status !== 'starting' && status !== 'stopping') return;
  throw new ApiError('modification_in_progress', `the sandbox is ${status}: send the change again later`, {
    status,
  });
}

function describe({ name, status }: LockedSandbox, { plan }: Planned): ModificationPlan {
  return { sandbox: name, status: status ?? 'none', applied: false, warnings: [], ...plan };
}

function specsOf({ id, spec, run_spec }: LockedSandbox) {
  if (spec && run_spec) return { id, spec, run_spec };
  throw new ApiError(
    'modification_unsupported',
    'the sandbox was imported without a specification: create it again with its secrets',
  );
}

/** Also one that starts, whose engine may have the secrets by now, and a paused one, whose memory has them. */
function isRunning({ status, paused_at }: LockedSandbox): boolean {
  return status === 'running' || status === 'starting' || status === 'stopping' || paused_at !== null;
}

/**
 * The gateway gets the same from the store when it starts again. The lock keeps two changes in their order, so a value
 * that the later one removed does not come back.
 */
async function applyLive({ pool, keyring, runtime, log }: Context, orgId: string, id: string): Promise<void> {
  try {
    await inTransaction(pool, async (tx) => {
      const spec = (await lockSandbox(tx, orgId, { id }))?.run_spec;
      if (!spec) return;
      const secrets = await openSecrets(tx, keyring, orgId, id);
      await runtime.changeSecrets?.({ orgId, sandboxId: id, spec, secrets });
    });
  } catch (error) {
    log.warn({ err: error, sandbox_id: id }, 'changed secrets did not reach the gateway');
    throw new ApiError('modification_failed');
  }
}
