import { RECONCILER } from '../audit/events/actor.js';
import type { Context } from '../context.js';
import { violatedConstraint } from '../db/pool.js';
import { inTransaction, type EventSql } from '../db/transaction.js';
import { CaptureRefusedError, type Captured } from '../engine/runtime.js';
import { Slots } from '../fairness/slots.js';
import { ApiError } from '../http/errors.js';
import { addMillis } from '../lib/instant.js';
import { sleep } from '../lib/sleep.js';
import { lockSandbox } from '../sandboxes/queries.js';
import { LeaseLostError, type Term } from '../workers/lease.js';
import { completeSnapshot } from './complete.js';
import { failSnapshot } from './fail.js';
import type { CopiedSizes } from '../volumes/copies.js';
import { copyVolumes, removeDroppedVolumes, VolumeCopyError } from './forks/copy-volumes.js';
import { NO_COPIES } from './forks/end.js';
import { copyIds, isFork, type ForkRow } from './forks/queries.js';
import { LONGEST_CAPTURE_MS, TIMED_OUT } from './overdue.js';
import { refuseOverQuota } from './over-quota.js';
import { CAPTURABLE, updateSnapshot, type CaptureRow } from './queries.js';
import { TRANSITIONS } from './state.js';
import { lockSnapshot, nextOfEach, sharedBytesOf } from './work-queries.js';

/** The disk of an engine is shared, and a capture writes as fast as it can. One place is for a further organization. */
export const CAPTURES_AT_ONCE = { total: 2, each: 1 };
const MOST_ATTEMPTS = 5;
const RETRY_MS = 2_000;
/** At the end of the service. A later process repeats a capture that is not complete. */
const LONGEST_CLOSE_MS = 2_000;

interface Failure {
  code: string;
  message: string;
}

/**
 * Carries out the captures of an engine, in a term of its lease. The rows say what is wanted, and the engine what is
 * made. So a capture that was killed in any step is repeated, and one that is complete is only recorded.
 */
export class CaptureQueue {
  private readonly slots = new Slots(CAPTURES_AT_ONCE);
  private readonly busy = new Map<string, Promise<void>>();
  private readonly retryAt = new Map<string, number>();
  /** When the latest capture of an organization began. */
  private readonly lastBegun = new Map<string, number>();
  private isClosing = false;

  constructor(
    private readonly ctx: Context,
    /** Called after each capture: another pass is due. */
    private readonly again: () => void,
  ) {}

  async pass(term: Term): Promise<void> {
    const now = performance.now();
    for (const [id, at] of this.retryAt) if (at <= now) this.retryAt.delete(id);
    // Nothing waits for longer.
    for (const [id, at] of this.lastBegun) if (at <= now - LONGEST_CAPTURE_MS) this.lastBegun.delete(id);
    const rows = await nextOfEach(this.ctx.pool, this.ctx.runtime.engineId, [...this.retryAt.keys()]);
    // A stable sort: the oldest first among those without a capture.
    const begunAt = ({ org_id }: CaptureRow) => this.lastBegun.get(org_id) ?? 0;
    for (const row of rows.toSorted((a, b) => begunAt(a) - begunAt(b))) {
      if (this.busy.has(row.id)) continue;
      const release = this.slots.acquire(row.org_id);
      if (!release) continue;
      const work = this.run(term, row).finally(() => {
        this.busy.delete(row.id);
        release();
        this.again();
      });
      this.busy.set(row.id, work);
    }
  }

  async close(): Promise<void> {
    this.isClosing = true;
    const waited = new AbortController();
    await Promise.race([Promise.all(this.busy.values()), sleep(LONGEST_CLOSE_MS, waited.signal)]);
    waited.abort();
  }

  private async run(term: Term, row: CaptureRow): Promise<void> {
    const { ctx } = this;
    try {
      const begun = await this.inTerm(term, (tx) => this.begin(tx, row));
      if (!begun) {
        this.retryAt.set(row.id, performance.now() + RETRY_MS);
        return;
      }
      this.lastBegun.set(row.org_id, performance.now());
      const { captured, volumes } = await this.capture(term, begun);
      await this.inTerm(term, (tx) => completeSnapshot(ctx, tx, begun, captured, volumes));
    } catch (error) {
      if (this.isClosing || error instanceof LeaseLostError || !term.valid) return;
      this.retryAt.set(row.id, performance.now() + RETRY_MS * 2 ** row.attempts);
      const failure = failureOf(error, row);
      const fields = { err: error, orgId: row.org_id, snapshotId: row.id };
      if (!failure) ctx.log.error(fields, 'a capture of a sandbox failed; it will be tried again');
      else
        await this.fail(term, row, failure).catch((cause: unknown) =>
          ctx.log.error({ ...fields, err: cause }, 'the end of a capture could not be recorded'),
        );
    } finally {
      if (isFork(row) && !this.isClosing) await this.removeDropped(row);
    }
  }

  /** Nothing may write to them any more. A failure leaves them to the job for such data. */
  private async removeDropped(row: ForkRow): Promise<void> {
    await removeDroppedVolumes(this.ctx, row).catch((err: unknown) =>
      this.ctx.log.warn(
        { err, orgId: row.org_id, snapshotId: row.id },
        'cannot remove the volumes of a fork',
      ),
    );
  }

  /** Undefined: a later pass begins it, or it has ended. */
  private async begin(
    tx: EventSql,
    { org_id: orgId, id, sandbox_id, sandbox_name }: CaptureRow,
  ): Promise<CaptureRow | undefined> {
    const sandbox = await lockSandbox(tx, orgId, { id: sandbox_id, orWarm: true });
    const row = await lockSnapshot(tx, { org_id: orgId, id });
    if (!row || (row.status !== 'queued' && row.status !== 'in_progress')) return undefined;
    const at = this.ctx.now();
    const fail = async (failure: Failure) => {
      await failSnapshot(tx, row, failure, RECONCILER, at);
      return undefined;
    };
    if (!sandbox) {
      return fail({ code: 'sandbox_changed', message: 'the sandbox was deleted before its capture began' });
    }
    if (addMillis(row.created_at, LONGEST_CAPTURE_MS) <= at) return fail(TIMED_OUT);
    if (row.attempts >= MOST_ATTEMPTS) {
      return fail({
        code: 'engine_failed',
        message: `the engine failed ${row.attempts} times to capture the disk: ask the operator for the log of the service`,
      });
    }
    if (isFork(row) && (await copyIds(tx, orgId, id)).length === 0) return fail(NO_COPIES);
    // It starts or stops: its disk changes.
    if (!CAPTURABLE.includes(sandbox.status)) return undefined;
    const next = TRANSITIONS[row.status].begin;
    const status = next === 'in_progress' ? next : row.status;
    const begun = await updateSnapshot(tx, row, { status, attempts: row.attempts + 1 }, at);
    return { ...begun, sandbox_id, sandbox_name };
  }

  private async capture(term: Term, row: CaptureRow): Promise<{ captured: Captured; volumes: CopiedSizes }> {
    const { org_id: orgId, id: snapshotId, sandbox_id: sandboxId } = row;
    const { disk, pool, runtime } = this.ctx;
    const { snapshots } = runtime;
    if (!snapshots) {
      throw new CaptureRefusedError(
        'not_supported',
        'the engine of the sandbox makes no snapshots any more: keep its files in a volume, or ask the operator',
      );
    }
    const ended = new AbortController();
    const signal = AbortSignal.any([term.signal, ended.signal]);
    let volumes: CopiedSizes = new Map();
    const alongside = async () => {
      if (isFork(row)) volumes = await copyVolumes(this.ctx, row, signal);
    };
    const admit = async (bytes: number) => {
      await refuseOverQuota(pool, orgId, Math.max(0, bytes - (await sharedBytesOf(pool, row))));
      disk.check('engine', bytes);
    };
    const work = snapshots.capture({ orgId, snapshotId, sandboxId, admit, alongside }, term.signal);
    const left = Date.parse(row.created_at) + LONGEST_CAPTURE_MS - Date.parse(this.ctx.now());
    const late = sleep(Math.max(0, left), ended.signal).then(() => 'late' as const);
    try {
      const captured = await Promise.race([work, late]);
      if (captured === 'late') throw new TimedOutError();
      return { captured, volumes };
    } finally {
      ended.abort();
    }
  }

  private async fail(term: Term, { org_id, id, sandbox_id }: CaptureRow, failure: Failure): Promise<void> {
    await this.inTerm(term, async (tx) => {
      const sandbox = await lockSandbox(tx, org_id, { id: sandbox_id, orWarm: true });
      const row = await lockSnapshot(tx, { org_id, id });
      if (!row || TRANSITIONS[row.status].fail !== 'failed') return;
      // The disk went with the sandbox.
      const reason = !sandbox && failure.code === 'disk_missing' ? DELETED : failure;
      await failSnapshot(tx, row, reason, RECONCILER, this.ctx.now());
    });
  }

  private async inTerm<T>(term: Term, work: (tx: EventSql) => Promise<T>): Promise<T> {
    return inTransaction(this.ctx.pool, async (tx) => {
      await term.assertHeld(tx);
      return work(tx);
    });
  }
}

class TimedOutError extends Error {}

const DELETED: Failure = {
  code: 'sandbox_changed',
  message: 'the sandbox was deleted during its capture',
};

/** Undefined: a later attempt may succeed. */
function failureOf(error: unknown, { name }: CaptureRow): Failure | undefined {
  if (error instanceof CaptureRefusedError) return { code: error.code, message: error.message };
  if (error instanceof VolumeCopyError) return { code: error.code, message: error.message };
  if (error instanceof TimedOutError) return TIMED_OUT;
  if (error instanceof ApiError && (error.code === 'quota_exceeded' || error.code === 'storage_full')) {
    return { code: error.code, message: error.message };
  }
  if (violatedConstraint(error) !== 'snapshots_name') return undefined;
  return { code: 'snapshot_already_exists', message: `another snapshot has the name "${name}" now` };
}
