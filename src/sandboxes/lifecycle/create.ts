import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { announceChange } from '../../db/changes.js';
import { violatedConstraint, type Sql } from '../../db/pool.js';
import type { WriteBatch } from '../../db/write-batch.js';
import type { Writer } from '../../idempotency/keyed.js';
import { inWrite } from '../../idempotency/write.js';
import type { Instant } from '../../lib/instant.js';
import { newId } from '../../lib/uuid.js';
import { checkSelection } from '../../registry-credentials/check-selection.js';
import { reserve } from '../../quotas/reserve.js';
import { checkSize } from '../../quotas/size-limits.js';
import { sealSecrets } from '../../secrets/secrets.js';
import { withDisk } from '../admission/disk-size.js';
import { onSnapshot, onSnapshotOf, withDiskSource } from '../admission/disk-source.js';
import { withKeyLabels, refuseMounts } from '../admission/key-labels.js';
import { volumesOf } from '../admission/mount-volumes.js';
import { makeSlug } from '../admission/make-slug.js';
import { nextRunOf } from './next-run.js';
import { insertLabels, insertMounted, insertSandbox } from '../queries.js';
import { findReady, NOT_ASKED, takeReady } from '../pools/take.js';
import { refuseTaken } from './refusals.js';
import { insertPublished } from '../published-ports/queries.js';
import { checkPublished, takePorts, withPorts } from '../published-ports/take.js';
import { beginRun } from './request-run.js';
import { removeFailed } from './replace-failed.js';
import { presentSandbox, SANDBOX, type SandboxResponse } from '../row.js';
import { SPECIFICATION, type CreateSandboxRequest } from '../../spec/specification.js';

const SLUG_ATTEMPTS = 5;

interface StartChoice {
  start: boolean;
  wantedUntil?: Instant | null;
  building?: Building;
}

/** The sandbox of a build has an id that the build has written down, and is on the engine of the build. */
interface Building {
  sandboxId: string;
  workerId: string;
  /** Null: its disk begins with the image. */
  snapshotId: string | null;
}

/**
 * Creates a sandbox and, with `start`, admits its first run. Returns before the run starts. `wantedUntil`: the run ends
 * then if it still has no place. Null, default: it waits for one.
 */
export async function createSandbox(
  ctx: Context,
  caller: Writer,
  asked: CreateSandboxRequest,
  when: StartChoice,
): Promise<SandboxResponse> {
  const labels = withKeyLabels(caller, asked.labels);
  const request = { ...asked, ...(labels ? { labels } : {}) };
  refuseMounts(caller, request);
  SPECIFICATION.check(request, ctx.runtime);
  checkPublished(ctx.settings, request);
  let replaces = false;
  for (let attempt = 1; ; attempt += 1) {
    const slug = request.slug ?? makeSlug();
    try {
      const created = await inWrite(ctx, caller, async (tx, batch) => {
        if (replaces) await removeFailed(ctx, tx, caller, request.name);
        return insert(ctx, tx, batch, caller, { ...request, slug }, when);
      });
      if (when.start && !caller.keyed?.isReplay) ctx.meters.sandboxCreated(created.source?.start ?? 'cold');
      return created;
    } catch (error) {
      const constraint = violatedConstraint(error);
      // Both may belong to one failed sandbox.
      const wasNamed =
        constraint === 'sandboxes_name' || (constraint === 'sandboxes_slug' && request.slug != null);
      if (wasNamed && !replaces) {
        replaces = true;
        continue;
      }
      // The service made this slug, so it makes another one.
      if (constraint === 'sandboxes_slug' && request.slug == null && attempt < SLUG_ATTEMPTS) continue;
      refuseTaken(constraint, { name: request.name, slug });
      throw error;
    }
  }
}

async function insert(
  ctx: Context,
  tx: Sql,
  batch: WriteBatch,
  caller: Writer,
  asked: CreateSandboxRequest & { slug: string },
  { start, wantedUntil = null, building }: StartChoice,
): Promise<SandboxResponse> {
  const { orgId, actor } = caller;
  const id = building?.sandboxId ?? newId();
  const at = ctx.now();
  const base = building?.snapshotId ?? null;
  const { request, snapshot } =
    base === null
      ? await withDiskSource(tx, caller, asked, ctx.runtime)
      : await onSnapshotOf(tx, orgId, asked, base);
  // The template has added fields.
  if (asked.image.type === 'template') SPECIFICATION.check(request, ctx.runtime);
  const volumes = await volumesOf(tx, orgId, request, ctx.runtime);
  await checkSelection(tx, orgId, request);
  const ephemeral = request.lifecycle?.ephemeral ?? false;
  const found =
    start && !snapshot && !building ? await findReady(ctx, tx, orgId, request, volumes) : NOT_ASKED;
  if (found.ready) return takeReady(ctx, tx, batch, caller, request, found);
  const limits = await reserve(ctx, tx, caller, {
    sandbox: true,
    ports: request.network?.ports?.length ?? 0,
    ...(start ? { start: { ephemeral, at, labels: request.labels ?? {} } } : {}),
  });
  const ports = await takePorts(ctx.settings, tx, caller, request);
  const resolved = withPorts(withDisk(request, limits, ctx.runtime), ports);
  const { runSpec: ofImage, spec } = SPECIFICATION.resolve(resolved, volumes);
  const runSpec = snapshot ? onSnapshot(ofImage, snapshot) : ofImage;
  checkSize(limits, runSpec);
  const created = {
    ...SANDBOX.initial,
    org_id: orgId,
    id,
    name: request.name,
    slug: request.slug,
    status: 'created',
    ephemeral,
    created_at: at,
    spec,
    runtime: ctx.runtime.name,
    disk_snapshot_id: snapshot?.id ?? null,
    source: found.source,
  } as const;
  await recordEvent(batch, {
    orgId,
    type: 'sandbox_created',
    actor,
    resourceId: id,
    at,
    payload: {
      sandbox_id: id,
      name: created.name,
      slug: created.slug,
      image: runSpec.image,
      ...(snapshot ? { disk_snapshot_id: snapshot.id } : {}),
      previous_status: null,
      status: 'created',
      reason: 'requested',
      ...(start ? { source: 'cold' as const } : {}),
      ...(ports.length > 0 ? { published_ports: ports } : {}),
    },
  });
  const admitted = start
    ? await beginRun(batch, created, nextRunOf(runSpec, limits, actor, wantedUntil), at)
    : { run_id: null };
  const row = { ...created, ...admitted };
  const worker_id = snapshot?.workerId ?? building?.workerId;
  const kept = {
    run_spec: runSpec,
    changed_at: at,
    ...(worker_id === undefined ? {} : { worker_id }),
  };
  await insertSandbox(batch, { ...row, ...kept });
  await sealSecrets(batch, ctx.keyring, orgId, id, SPECIFICATION.secretsOf(request));
  await insertLabels(batch, row, spec.labels);
  await insertMounted(batch, orgId, id, [...volumes.named.values()]);
  await insertPublished(batch, orgId, id, ports);
  if (start) await announceChange(batch, id);
  return presentSandbox(row, caller.access);
}
