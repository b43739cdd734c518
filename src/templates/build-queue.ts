import { RECONCILER } from '../audit/events/actor.js';
import type { WorkerContext } from '../context.js';
import { inTransaction, type EventSql } from '../db/transaction.js';
import { PacedSteps } from '../fairness/paced-steps.js';
import { Slots } from '../fairness/slots.js';
import { sleep } from '../lib/sleep.js';
import { OpenSessions } from '../sandboxes/sessions/open-sessions.js';
import { LeaseLostError, type Term } from '../workers/lease.js';
import { BuildEndedError, type AbortReason, type BuildEnvironment } from './build/environment.js';
import { failureOf } from './build/failure.js';
import { BuildLog } from './build/log.js';
import { runBuild } from './build/run-build.js';
import { removeBuildSandbox } from './build/sandbox.js';
import { endBuild, TIMED_OUT, type BuildFailure } from './end.js';
import { lockTemplate, updateTemplate, type TemplateRow } from './queries.js';
import { TIMEOUT_SECS } from './read-request.js';
import { TRANSITIONS } from './state.js';
import { succeedBuild } from './succeed.js';
import { endedAmong, interruptedBuilds, leftSandboxes, nextOfEach } from './work-queries.js';

/** A build costs the service the reading of its output and the copying of its context. */
export const BUILDS_AT_ONCE = { total: 4, each: 1 };
/** At the end of the service. The next process ends builds that remain. */
const LONGEST_CLOSE_MS = 5_000;

const FAILURES: Record<AbortReason, string> = {
  cancelled: 'the build was cancelled',
  timed_out: TIMED_OUT.message,
  interrupted: 'the service stopped during the build: repeat the request',
};

interface Busy {
  abort: (reason: AbortReason) => void;
  done: Promise<void>;
}

/**
 * Carries out the builds of an engine, in a term of its lease. A build belongs to one process, and the next process
 * ends it.
 */
export class BuildQueue {
  private readonly slots = new Slots(BUILDS_AT_ONCE);
  private readonly busy = new Map<string, Busy>();
  /** When the latest build of an organization began. */
  private readonly lastBegun = new Map<string, number>();
  private readonly sessions: OpenSessions;
  private readonly turns: PacedSteps;

  constructor(
    private readonly ctx: WorkerContext,
    /** Called after each build: another pass is due. */
    private readonly again: () => void,
  ) {
    this.sessions = new OpenSessions(ctx);
    this.turns = new PacedSteps(ctx.pace);
  }

  async pass(term: Term): Promise<void> {
    const { pool, runtime, log } = this.ctx;
    for (const row of await interruptedBuilds(pool, runtime.engineId, this.ids)) {
      await this.end(term, row, { code: 'interrupted', message: FAILURES.interrupted });
    }
    for (const row of await leftSandboxes(pool, runtime.engineId, this.ids)) {
      if (!term.valid) return;
      await removeBuildSandbox({ ctx: this.ctx, row }, row.sandbox_id).catch((error: unknown) =>
        log.error(
          { err: error, orgId: row.org_id, sandboxId: row.sandbox_id },
          'the sandbox of a build stays',
        ),
      );
    }
    await this.abortCancelled();
    // No build takes longer. A forgotten organization is served first, as the oldest entry would be.
    const prunedAt = performance.now() - TIMEOUT_SECS.max * 1000;
    for (const [id, at] of this.lastBegun) if (at <= prunedAt) this.lastBegun.delete(id);
    const begunAt = ({ org_id }: TemplateRow) => this.lastBegun.get(org_id) ?? 0;
    const rows = await nextOfEach(pool, runtime.engineId, this.ids);
    for (const row of rows.toSorted((a, b) => begunAt(a) - begunAt(b))) this.begin(term, row);
  }

  async close(): Promise<void> {
    for (const { abort } of this.busy.values()) abort('interrupted');
    const waited = new AbortController();
    const ended = Promise.all([...this.busy.values()].map(({ done }) => done));
    await Promise.race([ended, sleep(LONGEST_CLOSE_MS, waited.signal)]);
    waited.abort();
    await this.sessions.close();
  }

  /** Whether this process builds it. */
  builds(id: string): boolean {
    return this.busy.has(id);
  }

  private get ids(): string[] {
    return [...this.busy.keys()];
  }

  private begin(term: Term, row: TemplateRow): void {
    const release = this.slots.acquire(row.org_id);
    if (!release) return;
    this.lastBegun.set(row.org_id, performance.now());
    const controller = new AbortController();
    const abort = (reason: AbortReason) => controller.abort(reason);
    const timer = setTimeout(() => abort('timed_out'), row.timeout_secs * 1000);
    const lost = () => abort('interrupted');
    term.signal.addEventListener('abort', lost, { once: true, signal: controller.signal });
    const done = this.run(term, row, controller.signal).finally(() => {
      clearTimeout(timer);
      term.signal.removeEventListener('abort', lost);
      this.busy.delete(row.id);
      release();
      this.again();
    });
    this.busy.set(row.id, { abort, done });
  }

  private async abortCancelled(): Promise<void> {
    for (const id of await endedAmong(this.ctx.pool, this.ids)) this.busy.get(id)?.abort('cancelled');
  }

  private async run(term: Term, queued: TemplateRow, signal: AbortSignal): Promise<void> {
    const { ctx, sessions, turns } = this;
    const ref = { orgId: queued.org_id, templateId: queued.id };
    const log = new BuildLog(ctx, ref);
    try {
      const row = await this.inTerm(term, (tx) => this.start(tx, queued));
      if (!row) return;
      const env: BuildEnvironment = { ctx, sessions, term, row, log, turns, signal };
      const built = await runBuild(env);
      log.say('the template is built');
      await log.flush();
      await succeedBuild(env, built);
    } catch (error) {
      if (error instanceof LeaseLostError || error instanceof BuildEndedError || !term.valid) return;
      const failure = this.explain(error, queued, signal);
      const place = failure.line == null ? '' : `line ${failure.line}: `;
      log.say(`${place}${failure.message}`);
      await log
        .flush()
        .catch((cause: unknown) => ctx.log.error({ err: cause, ...ref }, 'the log of a build is incomplete'));
      await this.end(term, queued, failure).catch((cause: unknown) =>
        ctx.log.error({ err: cause, ...ref }, 'the end of a build could not be recorded'),
      );
    }
  }

  private async start(tx: EventSql, queued: TemplateRow): Promise<TemplateRow | undefined> {
    const row = await lockTemplate(tx, queued);
    if (!row || TRANSITIONS[row.status].begin !== 'building') return undefined;
    const at = this.ctx.now();
    return updateTemplate(tx, row, { status: 'building', started_at: at }, at);
  }

  private explain(error: unknown, { org_id: orgId, id }: TemplateRow, signal: AbortSignal): BuildFailure {
    if (signal.aborted) {
      const code = signal.reason as AbortReason;
      return { code, message: FAILURES[code] };
    }
    const failure = failureOf(error);
    if (failure) return failure;
    this.ctx.log.error({ err: error, orgId, templateId: id }, 'a build failed');
    return {
      code: 'engine_failed',
      message:
        'the engine failed during the build: repeat the request, or ask the operator for the log of the service',
    };
  }

  private async end(term: Term, ref: TemplateRow, failure: BuildFailure): Promise<void> {
    await this.inTerm(term, async (tx) => {
      const row = await lockTemplate(tx, ref);
      if (!row || TRANSITIONS[row.status].fail !== 'failed') return;
      await endBuild(tx, row, failure, RECONCILER, this.ctx.now());
    });
  }

  private async inTerm<T>(term: Term, work: (tx: EventSql) => Promise<T>): Promise<T> {
    return inTransaction(this.ctx.pool, async (tx) => {
      await term.assertHeld(tx);
      return work(tx);
    });
  }
}
