import { isNarrowed } from '../../access/access.js';
import type { Caller } from '../../access/caller.js';
import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { announceChange } from '../../db/changes.js';
import type { Sql } from '../../db/pool.js';
import type { WriteBatch } from '../../db/write-batch.js';
import { stringifyExact } from '../../lib/exact-json.js';
import { microsOf, shortInstant, type Instant } from '../../lib/instant.js';
import { getLimits } from '../../quotas/queries.js';
import { reserve } from '../../quotas/reserve.js';
import { checkSize, effectiveDuration } from '../../quotas/size-limits.js';
import { takeOverRun } from '../../runs/queries.js';
import type { MountVolumes, RunSpec } from '../../spec/run-spec.js';
import { SPECIFICATION, type CreateSandboxRequest, type SandboxSpec } from '../../spec/specification.js';
import { encodeSpec, SPEC_FORMAT } from '../../spec/text.js';
import { withDisk } from '../admission/disk-size.js';
import { insertLabels } from '../queries.js';
import { presentSandbox, type SandboxResponse, type SandboxSource } from '../row.js';
import { lockReady, poolsWithImage, type ReadySandbox } from './queries.js';
import { differences } from './template.js';

type Request = CreateSandboxRequest & { slug: string };

/** `source` null: no pool has the image. */
export interface Found {
  ready?: { sandbox: ReadySandbox; runSpec: RunSpec; spec: SandboxSpec };
  source: SandboxSource | null;
}

export const NOT_ASKED: Found = { source: null };

/** Pools belong to the whole organization, so a key that is limited to labels learns nothing of them. */
export function shownSource({ access }: Caller, source: SandboxSource | null): SandboxSource | null {
  return source && isNarrowed(access)
    ? { start: source.start, pool: null, reason: null, differs: [] }
    : source;
}

/** Locks a ready sandbox that can be given to the create, or says why there is none. */
export async function findReady(
  ctx: Context,
  tx: Sql,
  orgId: string,
  request: Request,
  volumes: MountVolumes,
): Promise<Found> {
  const pools = await poolsWithImage(tx, orgId, request.image.reference, ctx.runtime.name);
  if (pools.length === 0) return NOT_ASKED;
  const limits = await getLimits(tx, orgId);
  if (!limits) return NOT_ASKED;
  const { runSpec, spec } = SPECIFICATION.resolve(withDisk(request, limits, ctx.runtime), volumes);
  const compared = pools.map((pool) => ({ ...pool, differs: differences(runSpec, pool.run_spec) }));
  // Its credentials are for a pull, which a pool makes without.
  if (SPECIFICATION.secretsOf(request).registry !== null) {
    for (const { differs } of compared) differs.push('registry');
  }
  const fitting = compared.filter(({ differs }) => differs.length === 0);
  const [first] = fitting;
  if (!first) {
    const { name: pool, differs } = compared.reduce((least, one) =>
      one.differs.length < least.differs.length ? one : least,
    );
    return { source: { start: 'cold', pool, reason: 'differs', differs } };
  }
  for (const { id, name: pool } of fitting) {
    const sandbox = await lockReady(tx, orgId, id, ctx.now());
    if (!sandbox) continue;
    const source = { start: 'warm', pool, reason: null, differs: [] } as const;
    return { ready: { sandbox, runSpec, spec }, source: { ...source, differs: [] } };
  }
  return { source: { start: 'cold', pool: first.name, reason: 'none_ready', differs: [] } };
}

/**
 * Gives a ready sandbox to the create: it gets the name, the labels and the specification of the caller, and keeps its
 * id and its run. The run goes on, so its usage has no gap and no overlap.
 */
export async function takeReady(
  ctx: Context,
  tx: Sql,
  batch: WriteBatch,
  caller: Caller,
  { name, slug, lifecycle }: Request,
  { ready, source }: Found,
): Promise<SandboxResponse> {
  const { sandbox: member, runSpec, spec } = ready!;
  const { orgId, actor } = caller;
  const { id, run_id, started_at } = member;
  const at = ctx.now();
  const ephemeral = lifecycle?.ephemeral ?? false;
  // It is counted already, as the kind of sandbox that it was.
  const start = { ephemeral, at, isCounted: ephemeral === member.ephemeral };
  const limits = await reserve(ctx, tx, caller, { start });
  checkSize(limits, runSpec);
  const shown = shownSource(caller, source);
  const row = { ...member, name, slug, ephemeral, created_at: at, spec, source: shown };
  await tx.query(
    `update sandboxes set name = $3, slug = $4, ephemeral = $5, created_at = $6, changed_at = $6, spec = $7, run_spec = $8,
       source = $9, warm = false
     where org_id = $1 and id = $2`,
    [orgId, id, name, slug, ephemeral, at, encodeSpec(spec), stringifyExact(runSpec), JSON.stringify(shown)],
  );
  await tx.query('update sandboxes set spec_format = $3 where org_id = $1 and id = $2', [
    orgId,
    id,
    SPEC_FORMAT,
  ]);
  await takeOverRun(batch, orgId, run_id, {
    max_duration_secs: fromNow(effectiveDuration(limits, runSpec.maxDurationSecs), started_at, at),
    idle_timeout_secs: runSpec.idleTimeoutSecs,
  });
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
      status: 'running',
      reason: 'requested',
      source: 'warm',
      ...(shown?.pool ? { pool: shown.pool } : {}),
      run_id,
      started_at: shortInstant(started_at),
    },
  });
  await insertLabels(batch, row, spec.labels);
  await announceChange(batch, id);
  return presentSandbox(row);
}

/** The longest run counts from its start, and the caller has the sandbox from now on. */
function fromNow(secs: number | null, startedAt: Instant, at: Instant): number | null {
  if (secs === null) return null;
  const micros = microsOf(at) - microsOf(startedAt);
  return secs + Math.max(0, Math.ceil(Number(micros) / 1_000_000));
}
