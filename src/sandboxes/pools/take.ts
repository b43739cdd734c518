import type { Caller } from '../../access/caller.js';
import { keyIdOf } from '../../audit/events/actor.js';
import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import type { LatePart } from '../../engine/runtime.js';
import { announceChange } from '../../db/changes.js';
import type { Sql } from '../../db/pool.js';
import type { WriteBatch } from '../../db/write-batch.js';
import { stringifyExact } from '../../lib/exact-json.js';
import { sleep } from '../../lib/sleep.js';
import { microsOf, shortInstant, type Instant } from '../../lib/instant.js';
import { getLimits } from '../../quotas/queries.js';
import { reserve } from '../../quotas/reserve.js';
import { checkSize } from '../../quotas/size-limits.js';
import { takeOverRun } from '../../runs/queries.js';
import type { MountVolumes, RunSpec } from '../../spec/run-spec.js';
import { SPECIFICATION, type CreateSandboxRequest, type SandboxSpec } from '../../spec/specification.js';
import { encodeSpec, SPEC_FORMAT } from '../../spec/text.js';
import { withDisk } from '../admission/disk-size.js';
import type { OfImage } from '../admission/disk-source.js';
import { nextRunOf } from '../lifecycle/next-run.js';
import { insertLabels } from '../queries.js';
import { RUNNING_COMMAND } from '../reconcile/command-state.js';
import { presentSandbox, type SandboxResponse, type SandboxSource } from '../row.js';
import { lockReady, poolsWithImage, readyParts, type ReadySandbox } from './queries.js';
import { differenceOf } from './template.js';

/**
 * A ready sandbox may be locked: another create takes it, or the reconciler looks at it for some milliseconds. A cold
 * start takes longer than all attempts together.
 */
const ATTEMPTS = 15;
const RETRY_MS = 20;

type Request = OfImage<CreateSandboxRequest & { slug: string }>;

/** `source` null: no pool has the image. */
export interface Found {
  /** `parts`: those that the sandbox gets at each start. */
  ready?: { sandbox: ReadySandbox; runSpec: RunSpec; spec: SandboxSpec; parts: LatePart[] };
  source: SandboxSource | null;
}

export const NOT_ASKED: Found = { source: null };

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
  const compared = pools.map((pool) => ({ ...pool, ...differenceOf(runSpec, pool.run_spec) }));
  // Its credentials are for a pull, which a pool makes without.
  if (SPECIFICATION.secretsOf(request).registry !== null) {
    for (const { fields } of compared) fields.push('registry');
  }
  const fitting = compared.filter(({ fields }) => fields.length === 0);
  const [first] = fitting;
  if (!first) {
    const { name: pool, fields: differs } = compared.reduce((least, one) =>
      one.fields.length < least.fields.length ? one : least,
    );
    return { source: { start: 'cold', pool, reason: 'differs', differs } };
  }
  for (let attempt = 1; ; attempt += 1) {
    const at = ctx.now();
    for (const { id, name: pool, late } of fitting) {
      const parts = [...new Set(late.map(({ part }) => part))].toSorted();
      const sandbox = await lockReady(tx, orgId, id, parts, at);
      if (!sandbox) continue;
      const source = { start: 'warm', pool, reason: null, differs: [] } as const;
      return { ready: { sandbox, runSpec, spec, parts }, source: { ...source, differs: [] } };
    }
    const ready = await readyParts(tx, orgId, first.id, at);
    const lacking = first.late.filter(({ part }) => ready && !ready.includes(part));
    const isLocked = ready !== undefined && lacking.length === 0;
    if (isLocked && attempt < ATTEMPTS) {
      await sleep(RETRY_MS);
      continue;
    }
    const differs = [...new Set(lacking.map(({ field }) => field))].toSorted();
    const reason = differs.length > 0 ? 'differs' : 'none_ready';
    return { source: { start: 'cold', pool: first.name, reason, differs } };
  }
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
  const { sandbox: member, runSpec, spec, parts } = ready!;
  const { orgId, actor } = caller;
  const { id, run_id, started_at } = member;
  const at = ctx.now();
  const ephemeral = lifecycle?.ephemeral ?? false;
  // It is counted already, as the kind of sandbox that it was.
  const start = { ephemeral, at, labels: spec.labels, isCounted: ephemeral === member.ephemeral };
  const limits = await reserve(ctx, tx, caller, { start });
  checkSize(limits, runSpec);
  const { command, max_duration_secs } = nextRunOf(runSpec, limits, actor);
  // Its end is looked for from now on, also before the reconciler has handed it over.
  const state = command ? RUNNING_COMMAND : null;
  const row = { ...member, name, slug, ephemeral, created_at: at, spec, source, command: state };
  await tx.query(
    `update sandboxes set name = $3, slug = $4, ephemeral = $5, created_at = $6, changed_at = $6, spec = $7, run_spec = $8,
       source = $9, command = $10, takes = $11, warm = false
     where org_id = $1 and id = $2`,
    [
      orgId,
      id,
      name,
      slug,
      ephemeral,
      at,
      encodeSpec(spec),
      stringifyExact(runSpec),
      JSON.stringify(source),
      state && JSON.stringify(state),
      parts.length > 0 ? parts : null,
    ],
  );
  await tx.query('update sandboxes set spec_format = $3 where org_id = $1 and id = $2', [
    orgId,
    id,
    SPEC_FORMAT,
  ]);
  const terms = {
    max_duration_secs: fromNow(max_duration_secs, started_at, at),
    idle_timeout_secs: runSpec.idleTimeoutSecs,
    command: command ?? null,
    started_by_key: keyIdOf(actor),
  };
  await takeOverRun(batch, orgId, run_id, terms, at);
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
      ...(source?.pool ? { pool: source.pool } : {}),
      run_id,
      started_at: shortInstant(started_at),
    },
  });
  await insertLabels(batch, row, spec.labels);
  await announceChange(batch, id);
  return presentSandbox(row, caller.access);
}

/** The longest run counts from its start, and the caller has the sandbox from now on. */
function fromNow(secs: number | null, startedAt: Instant, at: Instant): number | null {
  if (secs === null) return null;
  const micros = microsOf(at) - microsOf(startedAt);
  return secs + Math.max(0, Math.ceil(Number(micros) / 1_000_000));
}
