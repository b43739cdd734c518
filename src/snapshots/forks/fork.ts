import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { announceSnapshot } from '../../db/changes.js';
import { violatedConstraint } from '../../db/pool.js';
import type { Transaction } from '../../db/transaction.js';
import type { WriteBatch } from '../../db/write-batch.js';
import { StartRefusedError } from '../../engine/runtime.js';
import { ApiError } from '../../http/errors.js';
import type { Writer } from '../../idempotency/keyed.js';
import { inWrite } from '../../idempotency/write.js';
import { stringifyExact } from '../../lib/exact-json.js';
import type { Instant } from '../../lib/instant.js';
import { newId } from '../../lib/uuid.js';
import type { Limits } from '../../quotas/limits.js';
import { lockQuotas } from '../../quotas/queries.js';
import { reserve } from '../../quotas/reserve.js';
import { checkSize } from '../../quotas/size-limits.js';
import { withKeyLabels } from '../../sandboxes/admission/key-labels.js';
import { makeSlug } from '../../sandboxes/admission/make-slug.js';
import { nextRunOf } from '../../sandboxes/lifecycle/next-run.js';
import { refuseTaken } from '../../sandboxes/lifecycle/refusals.js';
import { beginRun } from '../../sandboxes/lifecycle/request-run.js';
import { insertPublished } from '../../sandboxes/published-ports/queries.js';
import { checkPublished, takePorts } from '../../sandboxes/published-ports/take.js';
import {
  insertLabels,
  insertMounted,
  insertSandbox,
  lockSandbox,
  type LockedSandbox,
  type SandboxKey,
} from '../../sandboxes/queries.js';
import { SANDBOX } from '../../sandboxes/row.js';
import { openSecrets, sealSecrets } from '../../secrets/secrets.js';
import type { PublishedPort } from '../../spec/network-schema.js';
import type { RunSecrets } from '../../spec/run-spec.js';
import { insertCopies, type CopiedSource } from '../../volumes/copy-queries.js';
import { insertSnapshot } from '../queries.js';
import { refuseUnfinished, sourceOf } from '../source.js';
import { refuseWithoutSnapshots } from '../supported.js';
import { checkRequest, mountsOfCopies, namesOf, refuseBadLabels, refuseTooMany } from './check.js';
import { copiedSpecs, withCopiedPorts, withCopiedVolumes, type Specs } from './copied-spec.js';
import { presentWithCopies } from './present.js';
import type { ForkRow } from './queries.js';
import type { ForkedSandbox, ForkOperation, ForkRequest } from './schema.js';
import { volumesOfCopies, type VolumeCopy } from './volume-names.js';

const ATTEMPTS = 5;
const SPEC_BYTES_OF_UNIT = 16 * 1024;

/** Each copy gets these. */
interface Copies {
  source: LockedSandbox;
  forkId: string;
  workerId: string;
  specs: Specs;
  secrets: RunSecrets;
  ports: PublishedPort[];
  /** The ids of volumes that all of them mount. */
  sharedVolumes: string[];
  copiedVolumes: CopiedSource[];
  /** Null: they do not start. */
  limits: Limits | null;
  at: Instant;
}

interface CopyIdentity {
  name: string;
  slug: string;
  volumes: VolumeCopy[];
}

/**
 * Admits all copies of a sandbox, or none. Returns before their disk is captured: they share one capture, and their
 * runs wait for it. `countUnits` counts the work against the key of the caller.
 */
export async function forkSandbox(
  ctx: Context,
  caller: Writer,
  key: SandboxKey,
  request: ForkRequest,
  countUnits: (units: number) => void,
): Promise<ForkOperation> {
  refuseWithoutSnapshots(ctx.runtime);
  checkRequest(request);
  let isCounted = false;
  const countOnce = (units: number) => {
    if (!isCounted) countUnits(units);
    isCounted = true;
  };
  for (let attempt = 1; ; attempt += 1) {
    let current: CopyIdentity = { name: '', slug: '', volumes: [] };
    try {
      return await inWrite(ctx, caller, async (tx, batch) => {
        const { row, copies } = await admit(ctx, tx, caller, key, request, countOnce);
        const sandboxes: ForkedSandbox[] = [];
        const names = await namesOf(tx, caller.orgId, request, copies.source.name);
        const volumes = await volumesOfCopies(tx, caller.orgId, copies.copiedVolumes, names);
        await insertCopies(tx, caller.orgId, copies.forkId, volumes.flat(), copies.at);
        for (const [index, name] of names.entries()) {
          current = { name, slug: makeSlug(), volumes: volumes[index]! };
          sandboxes.push(await insertCopy(ctx, tx, batch, caller, current, copies));
          // One statement for all of them would be as long as they are many.
          await batch.send();
        }
        return presentWithCopies(row, sandboxes);
      });
    } catch (error) {
      const constraint = violatedConstraint(error);
      // The service chose the slug and the names of volumes, and the other names unless the caller did.
      const isOwnChoice =
        constraint === 'sandboxes_slug' ||
        constraint === 'volumes_name' ||
        (constraint === 'sandboxes_name' && request.names === undefined);
      if (isOwnChoice && attempt < ATTEMPTS) continue;
      refuseTaken(constraint, current);
      throw error;
    }
  }
}

async function admit(
  ctx: Context,
  tx: Transaction,
  caller: Writer,
  key: SandboxKey,
  request: ForkRequest,
  countUnits: (units: number) => void,
): Promise<{ row: ForkRow; copies: Copies }> {
  const { orgId, actor } = caller;
  const { count, start = true, secrets: inheritedSecrets = 'none', ports: inheritedPorts = 'none' } = request;
  const source = await lockSandbox(tx, orgId, key);
  if (!source) throw new ApiError('sandbox_not_found');
  const capture = await sourceOf(ctx, tx, source, (message) => {
    const details = { status: source.status, operation: 'fork' };
    throw new ApiError('invalid_state_transition', message, details);
  });
  const runSpec = capture.spec;
  const labels = withKeyLabels(caller, { ...runSpec.labels, ...request.labels }) ?? {};
  refuseBadLabels(labels);
  const { mounts, shared, copied } = await mountsOfCopies(ctx, tx, caller, runSpec, request);
  const forkId = newId();
  const inheritsSecrets = inheritedSecrets === 'inherit';
  const specs = copiedSpecs({ spec: source.spec!, runSpec }, { forkId, labels, mounts, inheritsSecrets });
  const bytes = stringifyExact(specs).length;
  countUnits(count * (1 + copied.length + Math.floor(bytes / SPEC_BYTES_OF_UNIT)) - 1);
  const asked = inheritedPorts === 'inherit' ? (runSpec.ports ?? []) : [];
  const ports = asked.map((port) => ({ ...port, host_port: 0 }));
  checkPublished(ctx.settings, { network: { ports } });

  const at = ctx.now();
  // Serializes the captures of the organization, also without limits.
  await lockQuotas(tx, orgId, 'exclusive');
  const limits = await reserve(ctx, tx, caller, {
    sandbox: true,
    times: count,
    snapshot: true,
    ports: count * ports.length,
    cap: { gib: count * sum(copied.map(({ capacity_gib }) => capacity_gib ?? 0)), before: 0 },
    ...(start ? { start: { ephemeral: source.ephemeral, at, labels } } : {}),
  });
  checkSize(limits, runSpec);
  await refuseUnfinished(tx, orgId, 'fork');
  if (start) await refuseTooMany(ctx, tx, capture.columns.worker_id, runSpec, count);
  const secrets = inheritsSecrets ? await secretsOf(ctx, tx, source) : NO_SECRETS;
  const row = await insertSnapshot(tx, {
    ...capture.columns,
    id: forkId,
    purpose: 'fork',
    template_id: null,
    fork_count: count,
    name: source.name,
    labels,
    replaces: false,
    replaced_id: null,
    record_integrity: false,
    actor,
    created_at: at,
  });
  await recordEvent(tx, {
    orgId,
    type: 'sandbox_fork_requested',
    actor,
    resourceId: source.id,
    at,
    payload: {
      fork_id: forkId,
      sandbox_id: source.id,
      name: source.name,
      count,
      start,
      secrets: inheritedSecrets,
      ports: inheritedPorts,
      ...(request.volumes === undefined ? {} : { volumes: request.volumes }),
    },
  });
  await announceSnapshot(tx, forkId);
  const copies = {
    source,
    forkId,
    workerId: capture.columns.worker_id,
    specs,
    secrets,
    ports,
    sharedVolumes: shared,
    copiedVolumes: copied,
    limits: start ? limits : null,
    at,
  };
  return { row: row as ForkRow, copies };
}

function sum(numbers: readonly number[]): number {
  return numbers.reduce((total, one) => total + one, 0);
}

const NO_SECRETS: RunSecrets = { registry: null, values: {} };

/** The credentials of a registry are for a pull, and nothing is pulled. */
async function secretsOf(ctx: Context, tx: Transaction, { org_id, id }: LockedSandbox): Promise<RunSecrets> {
  try {
    return { ...(await openSecrets(tx, ctx.keyring, org_id, id)), registry: null };
  } catch (error) {
    if (!(error instanceof StartRefusedError)) throw error;
    throw new ApiError('invalid_request', error.message, { field: 'secrets' });
  }
}

async function insertCopy(
  ctx: Context,
  tx: Transaction,
  batch: WriteBatch,
  caller: Writer,
  { name, slug, volumes }: CopyIdentity,
  { source, forkId, workerId, specs, secrets, ports: wanted, sharedVolumes, limits, at }: Copies,
): Promise<ForkedSandbox> {
  const { orgId, actor } = caller;
  const id = newId();
  const ports = await takePorts(ctx.settings, tx, caller, { network: { ports: wanted } });
  const { spec, runSpec } = withCopiedPorts(withCopiedVolumes(specs, volumes), ports);
  const created = {
    ...SANDBOX.initial,
    org_id: orgId,
    id,
    name,
    slug,
    status: 'created',
    ephemeral: source.ephemeral,
    created_at: at,
    spec,
    runtime: ctx.runtime.name,
    disk_snapshot_id: forkId,
  } as const;
  await recordEvent(batch, {
    orgId,
    type: 'sandbox_created',
    actor,
    resourceId: id,
    at,
    payload: {
      sandbox_id: id,
      name,
      slug,
      image: runSpec.image,
      previous_status: null,
      status: 'created',
      reason: 'forked',
      disk_snapshot_id: forkId,
      forked_from: source.id,
      ...(limits ? { source: 'cold' as const } : {}),
      ...(ports.length > 0 ? { published_ports: ports } : {}),
    },
  });
  const admitted = limits
    ? await beginRun(batch, created, nextRunOf(runSpec, limits, actor), at)
    : { run_id: null };
  const row = { ...created, ...admitted };
  await insertSandbox(batch, { ...row, run_spec: runSpec, changed_at: at, worker_id: workerId });
  await sealSecrets(batch, ctx.keyring, orgId, id, secrets);
  await insertLabels(batch, row, runSpec.labels);
  await insertMounted(batch, orgId, id, [...sharedVolumes, ...volumes.map((volume) => volume.id)]);
  await insertPublished(batch, orgId, id, ports);
  return { id, name, slug, status: row.status };
}
