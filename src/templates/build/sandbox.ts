import { setMaxListeners } from 'node:events';
import type { Guest } from '../../guest/guest.js';
import { ApiError } from '../../http/errors.js';
import { newId } from '../../lib/uuid.js';
import { createSandbox } from '../../sandboxes/lifecycle/create.js';
import { destroySandbox } from '../../sandboxes/lifecycle/destroy.js';
import { getSandbox, getWorkerOf } from '../../sandboxes/queries.js';
import { endCauseOf } from '../../sandboxes/sessions/end-cause.js';
import type { EndReason } from '../../sandboxes/sessions/ended-error.js';
import type { Visit } from '../../sandboxes/sessions/entrance.js';
import { SessionRecorder } from '../../sandboxes/sessions/recorder.js';
import { BUILD_USER } from '../create.js';
import { updateTemplate } from '../queries.js';
import { callerOfBuild, inBuild, type BuildEnvironment } from './environment.js';
import { BuildError } from './failure.js';
import { untilChanged } from '../until-changed.js';

/** The reconciler stops it when nothing else has removed it. */
const SPARE_SECS = 300;

export type Start = { image: string } | { snapshotId: string };

/** A sandbox in which steps run. */
export interface RunningSandbox {
  id: string;
  /** Null: the engine does not tell. */
  imageDigest: string | null;
  /** A way into it for one step, which is a session of its own in the audit trail. */
  visit(): Promise<Visit>;
  /** Closes the way into it. */
  leave(): void;
}

/** The id is in the store before the sandbox is, so that it is removed after a crash. */
export async function startBuildSandbox(env: BuildEnvironment, start: Start): Promise<RunningSandbox> {
  const { ctx, row } = env;
  const id = newId();
  await inBuild(env, async (tx) => updateTemplate(tx, row, { sandbox_id: id }, ctx.now()));
  const snapshotId = 'snapshotId' in start ? start.snapshotId : null;
  const name = `build-${id}`;
  const request = {
    name,
    // The image below a snapshot replaces it.
    image: { type: 'oci' as const, reference: 'image' in start ? start.image : 'snapshot' },
    labels: row.labels,
    ...row.sandbox,
    runtime: { user: BUILD_USER },
    lifecycle: { ephemeral: true, max_duration_secs: row.timeout_secs + SPARE_SECS },
  };
  const building = { sandboxId: id, workerId: row.worker_id, snapshotId };
  await createSandbox(ctx, callerOfBuild(row), request, { start: true, building });
  const { image_digest: imageDigest, run_id: runId } = await untilRunning(env, id);
  let opened: Promise<Guest> | undefined;
  const left = new AbortController();
  return {
    id,
    imageDigest,
    visit: async () => {
      opened ??= open(env, id, left);
      return visitOf(env, { id, name, runId }, await opened, left);
    },
    leave: () => left.abort('client_left' satisfies EndReason),
  };
}

/** Idempotent. */
export async function removeBuildSandbox(
  { ctx, row }: Pick<BuildEnvironment, 'ctx' | 'row'>,
  sandboxId: string,
): Promise<void> {
  try {
    await destroySandbox(ctx, callerOfBuild(row), { id: sandboxId });
  } catch (error) {
    if (!(error instanceof ApiError) || error.kind !== 'sandbox_not_found') throw error;
  }
  await updateTemplate(ctx.pool, row, { sandbox_id: null }, ctx.now());
}

async function untilRunning(
  { ctx, row, signal }: BuildEnvironment,
  id: string,
): Promise<{ image_digest: string | null; run_id: string }> {
  return untilChanged(ctx, { id, channel: 'sandbox', signal }, async () => {
    const place = await getWorkerOf(ctx.pool, row.org_id, { id });
    const found = place && (await getSandbox(ctx.pool, row.org_id, { id }));
    if (place?.run_id != null && found?.status === 'running') {
      return { image_digest: found.image_digest, run_id: place.run_id };
    }
    if (found?.status === 'starting' || found?.status === 'created') return undefined;
    const reason = found?.last_failure_message ?? found?.stop_message ?? 'it was stopped or deleted';
    throw new BuildError('sandbox_failed', `a sandbox of the build did not start: ${reason}`);
  });
}

async function open({ ctx, signal }: BuildEnvironment, id: string, ended: AbortController): Promise<Guest> {
  const { guest, release } = await ctx.runtime.openGuest(id);
  setMaxListeners(0, ended.signal);
  ended.signal.addEventListener('abort', release, { once: true });
  const follow = (other: AbortSignal, reason: EndReason) => {
    const end = () => ended.abort(reason);
    other.addEventListener('abort', end, { once: true, signal: ended.signal });
    if (other.aborted) end();
  };
  follow(guest.gone, 'sandbox_stopped');
  follow(signal, 'client_left');
  return guest;
}

function visitOf(
  { ctx, sessions, row }: BuildEnvironment,
  { id, name, runId }: { id: string; name: string; runId: string },
  guest: Guest,
  ended: AbortController,
): Visit {
  const end = (reason: EndReason) => ended.abort(reason);
  const subject = { orgId: row.org_id, actor: row.actor, sandboxId: id, name };
  const recorder = new SessionRecorder(ctx, subject, sessions, {
    countMore: () => undefined,
    admitted: async (work) => work(() => undefined),
    onLost: () => end('cut_off'),
    onFilesEnded: () => end('session_ended'),
  });
  return {
    sandboxId: id,
    guest,
    recorder,
    ended: ended.signal,
    endCause: () => endCauseOf(ctx, { orgId: row.org_id, sandboxId: id, runId }),
    leave: () => end('client_left'),
  };
}
