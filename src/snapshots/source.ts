import type { Context } from '../context.js';
import type { Sql } from '../db/pool.js';
import { ApiError } from '../http/errors.js';
import { isPaused } from '../sandboxes/lifecycle/paused.js';
import type { LockedSandbox } from '../sandboxes/queries.js';
import type { RunSpec } from '../spec/run-spec.js';
import { CAPTURABLE, countUnfinished, getSource, type NewSnapshot } from './queries.js';

/** Each waits in the store for its turn. */
export const MOST_UNFINISHED = 100;
/** Up to 100 sandboxes wait for each. */
export const MOST_UNFINISHED_FORKS = 10;

type SourceColumns = Pick<
  NewSnapshot,
  | 'org_id'
  | 'sandbox_id'
  | 'sandbox_name'
  | 'image'
  | 'image_digest'
  | 'parent_id'
  | 'parent_digest'
  | 'runtime'
  | 'worker_id'
>;

/** Describes the source of a capture, which is locked. `refuse` throws for a sandbox that cannot be captured. */
export async function sourceOf(
  ctx: Context,
  tx: Sql,
  { org_id, id, name, status, runtime, run_spec, started_at, paused_at, image_digest }: LockedSandbox,
  refuse: (message: string) => never,
): Promise<{ spec: RunSpec; columns: SourceColumns }> {
  if (!run_spec) return refuse('the sandbox was imported, so there is no disk of it here');
  if (runtime !== ctx.runtime.name) {
    return refuse(
      `the sandbox belongs to the ${runtime} runtime, and this service runs the ${ctx.runtime.name} one`,
    );
  }
  if (isPaused({ status, paused_at }))
    return refuse(
      'a paused sandbox cannot be captured, as files are in its memory alone: resume it, or stop it',
    );
  const source = await getSource(tx, org_id, id);
  if (!CAPTURABLE.includes(status) || started_at === null || !source || source.worker_id === null) {
    return refuse(
      `a sandbox that is ${status} cannot be captured: it must be running, or stopped after a run`,
    );
  }
  const columns = {
    org_id,
    sandbox_id: id,
    sandbox_name: name,
    image: run_spec.image,
    image_digest,
    parent_id: source.parent_id,
    parent_digest: source.parent_digest,
    runtime,
    worker_id: source.worker_id,
  };
  return { spec: run_spec, columns };
}

/** The transaction holds the exclusive lock on the quotas of the organization, so the number stays. */
export async function refuseUnfinished(tx: Sql, orgId: string, purpose: 'snapshot' | 'fork'): Promise<void> {
  const { all, forks } = await countUnfinished(tx, orgId);
  if (all >= MOST_UNFINISHED) {
    throw new ApiError(
      'quota_exceeded',
      `${all} snapshots of the organization are being made: wait for some of them`,
      { limit: MOST_UNFINISHED, used: all },
    );
  }
  if (purpose === 'fork' && forks >= MOST_UNFINISHED_FORKS) {
    throw new ApiError(
      'quota_exceeded',
      `${forks} forks of the organization have not ended: wait for some of them`,
      { limit: MOST_UNFINISHED_FORKS, used: forks },
    );
  }
}
