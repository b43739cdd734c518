import { RECONCILER } from '../../audit/events/actor.js';
import type { Context } from '../../context.js';
import { isUnreachable } from '../../db/pool.js';
import { inTransaction, type EventSql } from '../../db/transaction.js';
import { microsOf, type Instant } from '../../lib/instant.js';
import { findForRun } from '../../registry-credentials/find-for-run.js';
import { readRunTimes, touchRuns } from '../../runs/queries.js';
import { NoRoomError, PauseRefusedError, StartRefusedError, type Holding } from '../../engine/runtime.js';
import type { RunSecrets, RunSpec } from '../../spec/run-spec.js';
import { openSecrets } from '../../secrets/secrets.js';
import { LeaseLostError, type Term } from '../../workers/lease.js';
import { lockSandbox } from '../queries.js';
import { requestPause } from '../lifecycle/pause.js';
import { requestStop, type StopReason } from '../lifecycle/stop.js';
import { TagChecks } from './moved-image.js';
import { RuntimeCalls } from './runtime-calls.js';
import { CommandWatch, type FoundCommand } from './command-watch.js';
import { decide, type Step } from './decide.js';
import { handOverParts } from './hand-over.js';
import { IdleWatch } from './idle-watch.js';
import {
  changedSandboxes,
  readRunSpec,
  sandboxesToReconcile,
  type FoundSpec,
  type ReconcileRow,
  type SandboxRef,
} from './queries.js';
import { recordCommands } from './record-command.js';
import { recordMemoryLost, recordPauseFailed } from './record-pause.js';
import { recordObservations, type Observation, type RunChange } from './record.js';
import { markDestroyed, writeRoomNotices, writeUnanswered, type RoomNotice } from './record-queries.js';
import { RoomNotices, waitingStarts } from './room-notices.js';
import { exitOf, observationOf } from './run-end.js';
import { PassScope } from './scope.js';
import { UnansweredNotices } from './unanswered-notices.js';

/** The least time between two notes that all these runs still run. */
const TOUCH_INTERVAL_MS = 10_000;
const BATCH = 200;

const NO_SECRETS: RunSecrets = { registry: null, values: {} };

/** The results of a pass, written together at its end. */
interface Seen {
  observations: Observation[];
  memoryLost: SandboxRef[];
  destroyed: SandboxRef[];
  /** Runs that this pass stops. The engine may lose the record of their end. */
  stopping: { orgId: string; runId: string }[];
}

/**
 * Closes the gap between the store and the runtime, in a term of the worker's lease. Each pass reads both. It decides
 * without memory of earlier passes, which only choose the sandboxes to visit.
 */
export class Reconciler {
  private readonly calls: RuntimeCalls;
  private readonly unanswered: UnansweredNotices;
  private readonly tagChecks: TagChecks;
  /** Runs that had not started when the engine carried out a kill. */
  private readonly quiet = new Set<string>();
  private readonly room = new RoomNotices();
  private lastTouch = 0;
  private readonly scope = new PassScope();
  private readonly commands: CommandWatch;
  private readonly idle: IdleWatch;
  private term: Term | undefined;

  constructor(
    private readonly ctx: Context,
    /** Called when another pass is due: after a call to the runtime or a write. */
    private readonly again: () => void,
  ) {
    this.calls = new RuntimeCalls(ctx, again);
    this.commands = new CommandWatch(ctx, (found) => this.writeCommands(found));
    this.idle = new IdleWatch(ctx, (term, row) => this.endRun(term, row, 'idle_timeout'));
    this.unanswered = new UnansweredNotices(ctx);
    this.tagChecks = new TagChecks(ctx);
  }

  /** Sandboxes that the next pass visits. Undefined: any may have changed. */
  note(sandboxIds: readonly string[] | undefined): void {
    this.scope.note(sandboxIds);
  }

  async pass(term: Term): Promise<void> {
    try {
      await this.visit(term, this.scope.next(this.ctx.runtime.listsSome ?? false));
    } catch (error) {
      this.scope.note(undefined);
      throw error;
    }
  }

  private async visit(term: Term, ids: ReadonlySet<string> | undefined): Promise<void> {
    const { ctx, scope } = this;
    const began = performance.now();
    // The list may or may not show the effect of a call in flight, so the next pass handles its sandbox.
    const unsure = this.calls.underWay;
    // Before the list: a run that ends meanwhile is not billed beyond its end.
    const listedAt = ctx.now();
    const holdings = new Map((await ctx.runtime.list(ids)).map((holding) => [holding.sandboxId, holding]));
    const rows = await this.readRows(ids, holdings);
    if (ids === undefined) await this.touch(rows, holdings, listedAt);
    await this.noteRoom(term, ids, rows, holdings);
    await this.noteUnanswered(term, rows);
    const seen: Seen = { observations: [], memoryLost: [], destroyed: [], stopping: [] };
    for (const row of rows) {
      const held = holdings.get(row.sandboxId);
      holdings.delete(row.sandboxId);
      let step: Step | undefined;
      try {
        if (!this.isBusy(row) && !unsure.has(row.sandboxId)) {
          step = this.reconcile(term, row, held, seen);
        }
      } catch (error) {
        if (error instanceof LeaseLostError) throw error;
        this.logFailure(error, row);
      }
      scope.visited(row, held, step === 'nothing');
    }
    if (seen.stopping.length > 0) await touchRuns(ctx.pool, seen.stopping, listedAt);
    await this.expireTimed(term);
    const written = await this.write(term, seen.observations, async (tx, batch) =>
      recordObservations(ctx, tx, batch),
    );
    await this.write(term, seen.memoryLost, async (tx, batch) => recordMemoryLost(tx, batch, ctx.now()));
    await this.write(term, seen.destroyed, async (tx, batch) => markDestroyed(tx, batch, ctx.now()));
    // An immediate pass would fail in the same way.
    if (written > 0 || scope.hasChanges) this.again();
    if (written > 0) {
      const attributes = { 'sandkeep.sandboxes': rows.length, 'sandkeep.recorded': written };
      const times = { began, ended: performance.now() };
      ctx.tracing?.record({ name: 'reconcile', kind: 'internal', ...times, attributes });
    }
    this.idle.begin(term, [...scope.timed.values()]);
    this.term = term;
    this.commands.begin([...scope.timed.values()]);
    this.destroyOrphans(term, [...holdings.values()], unsure);
  }

  /** The store does not know these sandboxes: a destroy may have been killed after its last write. */
  private destroyOrphans(term: Term, orphans: readonly Holding[], unsure: ReadonlySet<string>): void {
    const { ctx, scope } = this;
    for (const orphan of orphans) {
      const { sandboxId, runId } = orphan;
      scope.keepUnsettled(sandboxId);
      if (this.calls.has(sandboxId) || unsure.has(sandboxId)) continue;
      ctx.log.warn({ sandboxId, runId }, 'destroying a sandbox the store does not know');
      this.calls.begin(term, orphan, 'destroy', () => ctx.runtime.destroy(sandboxId));
    }
  }

  private async readRows(
    ids: ReadonlySet<string> | undefined,
    holdings: ReadonlyMap<string, Holding>,
  ): Promise<ReconcileRow[]> {
    const { ctx, scope } = this;
    const worker = { id: ctx.runtime.engineId, runtime: ctx.runtime.name };
    if (ids === undefined) return sandboxesToReconcile(ctx.pool, worker, [...holdings.values()]);
    const since = scope.changedSince(ctx.now());
    return scope.split(ids, await changedSandboxes(ctx.pool, worker, scope.refsOf(ids, holdings), since));
  }

  async close(): Promise<void> {
    await Promise.all([this.calls.close(), this.tagChecks.close(), this.idle.close(), this.commands.close()]);
  }

  /** True while a call is in flight. Aborts one that is no longer wanted. */
  private isBusy({ sandboxId, wanted }: ReconcileRow): boolean {
    if (wanted.status !== 'starting' || wanted.removed) this.calls.abandon(sandboxId, 'start');
    if (wanted.status !== 'running' || wanted.removed) this.calls.abandon(sandboxId, 'hand_over');
    return this.calls.has(sandboxId);
  }

  private reconcile(term: Term, row: ReconcileRow, held: Holding | undefined, seen: Seen): Step {
    const step = decide({ ...row.wanted, quiet: this.quiet.has(row.wanted.runId ?? '') }, held);
    this.carryOut(step, term, row, held, seen);
    return step;
  }

  private carryOut(step: Step, term: Term, row: ReconcileRow, held: Holding | undefined, seen: Seen): void {
    const { ctx } = this;
    const { sandboxId, wanted } = row;
    const runId = wanted.runId ?? '';
    const note = (observation: Observation) => {
      this.quiet.delete(runId);
      seen.observations.push(observation);
    };
    switch (step) {
      case 'nothing':
        return;
      case 'start':
        return this.calls.begin(term, row, step, (signal) => this.start(term, row, runId, signal));
      case 'hand_over':
        return this.calls.begin(term, row, step, (signal) =>
          handOverParts(ctx, row, (work) => this.inTerm(term, work), signal),
        );
      case 'stop':
        seen.stopping.push({ orgId: row.orgId, runId });
        return this.calls.begin(term, row, step, async () => {
          await this.commands.beforeStop(row);
          await ctx.runtime.stop(sandboxId, ctx.settings.stopGraceMs);
        });
      case 'pause':
        return this.calls.begin(term, row, step, () => this.pause(term, row, runId));
      case 'discard_memory':
        return this.calls.begin(term, row, 'destroy', async () => ctx.runtime.pauses?.discard(sandboxId));
      case 'record_memory_lost':
        seen.memoryLost.push(row);
        return;
      case 'kill':
        return this.calls.begin(term, row, step, async () => {
          await ctx.runtime.stop(sandboxId, 0);
          if (held?.state === 'prepared' || held?.state === 'starting') this.quiet.add(held.runId);
        });
      case 'destroy':
        return this.calls.begin(term, row, step, () => ctx.runtime.destroy(sandboxId));
      case 'drop_record':
        return this.calls.begin(term, row, 'destroy', async () => ctx.runtime.dropRecord?.(held!));
      case 'record_started':
        return note({
          ...observationOf(row, runId),
          occurrence: 'run_started',
          startedAt: held!.startedAt,
          imageDigest: held!.imageDigest,
          takes: held!.takes,
        });
      case 'record_exit':
        return note({ ...observationOf(row, runId), ...exitOf(held!, row) });
      case 'record_cancelled':
        return note({
          ...observationOf(row, runId),
          occurrence: 'run_ended',
          reason: 'cancelled',
        });
      case 'record_lost':
        return note({
          ...observationOf(row, runId),
          occurrence: 'run_lost',
          reason: 'lost',
          message: `the ${ctx.runtime.name} runtime no longer holds the sandbox, and has no record of its end`,
        });
      case 'record_destroyed':
        seen.destroyed.push(row);
    }
  }

  /** A sandbox whose memory cannot be saved runs on. */
  private async pause(term: Term, row: ReconcileRow, runId: string): Promise<void> {
    const { ctx } = this;
    const { orgId, sandboxId } = row;
    try {
      if (!ctx.runtime.pauses) throw new PauseRefusedError(`the ${ctx.runtime.name} runtime saves no memory`);
      await ctx.runtime.pauses.pause(sandboxId);
    } catch (error) {
      if (!(error instanceof PauseRefusedError)) throw error;
      ctx.log.warn({ err: error, orgId, sandboxId }, 'a pause was refused');
      const failed = { orgId, sandboxId, runId, message: error.message };
      await this.inTerm(term, (tx) => recordPauseFailed(tx, failed, ctx.now()));
      this.again();
    }
  }

  private async start(
    term: Term,
    { orgId, sandboxId, resumes }: ReconcileRow,
    runId: string,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      const found = await readRunSpec(this.ctx.pool, orgId, sandboxId);
      const { name, run_spec, caps, most_runs: mostRuns, records_network, is_member: isMember } = found;
      const spec = records_network ? { ...run_spec, networkRecord: true } : run_spec;
      const secrets = await this.secretsOf(found, orgId, sandboxId);
      signal.throwIfAborted();
      const capsGib = new Map(Object.entries(caps));
      const run = { orgId, sandboxId, runId, name, spec, secrets, capsGib, mostRuns, isMember, resumes };
      await this.ctx.runtime.start(run, signal);
      if (this.isEnteredSoon(spec)) this.openEarly(sandboxId);
      if (!resumes) this.tagChecks.begin(term, run);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof NoRoomError) {
        await this.writeRoom(term, [{ orgId, sandboxId, runId, noRoom: error.message }]);
      }
      if (!(error instanceof StartRefusedError)) throw error;
      this.ctx.log.warn({ err: error, orgId, sandboxId }, 'a start was refused');
      await this.record(term, {
        ...observationOf({ orgId, sandboxId }, runId),
        occurrence: 'start_failed',
        reason: 'start_failed',
        message: error.message,
      });
    }
  }

  /** Its own credentials of a registry come before stored ones. */
  private async secretsOf(
    { run_spec, has_secrets, has_credentials }: FoundSpec,
    orgId: string,
    sandboxId: string,
  ): Promise<RunSecrets> {
    const { pool, keyring } = this.ctx;
    const secrets = has_secrets ? await openSecrets(pool, keyring, orgId, sandboxId) : NO_SECRETS;
    if (secrets.registry !== null || !(has_credentials || run_spec.registryAccess)) return secrets;
    return { ...secrets, registry: await findForRun(pool, keyring, orgId, run_spec) };
  }

  /** A request woke it, or it has no command of its own: then it runs for the commands of sessions. */
  private isEnteredSoon({ wakeOnRequest, cmd }: RunSpec): boolean {
    if (wakeOnRequest === true) return true;
    return this.ctx.runtime.opensGuestsEarly === true && (cmd?.length ?? 0) === 0;
  }

  /** Somebody may wait for the way into this sandbox. It opens while the start is recorded, and stays for a while. */
  private openEarly(sandboxId: string): void {
    this.ctx.runtime.openGuest(sandboxId).then(
      ({ release }) => release(),
      (error: unknown) => this.ctx.log.debug({ err: error, sandboxId }, 'a guest was not opened early'),
    );
  }

  private async writeCommands(found: readonly FoundCommand[]): Promise<void> {
    const { term } = this;
    if (!term?.valid) return;
    const refs = found.map((one) => ({ ...one, orgId: one.row.orgId, sandboxId: one.row.sandboxId }));
    await this.write(term, refs, async (tx, batch) => recordCommands(this.ctx, tx, batch));
  }

  private async record(term: Term, observation: Observation): Promise<void> {
    this.quiet.delete(observation.runId);
    await this.inTerm(term, (tx) => recordObservations(this.ctx, tx, [observation]));
    this.again();
  }

  /**
   * Writes in batches, because transactions are expensive. It splits a failed batch in halves, so that one bad item
   * fails alone. Returns the number of written items.
   */
  private async write<Item extends SandboxRef>(
    term: Term,
    items: readonly Item[],
    work: (tx: EventSql, batch: readonly Item[]) => Promise<void | RunChange[]>,
    most = BATCH,
  ): Promise<number> {
    let written = 0;
    for (let from = 0; from < items.length; from += most) {
      const batch = items.slice(from, from + most);
      try {
        await this.inTerm(term, (tx) => work(tx, batch));
        written += batch.length;
      } catch (error) {
        // These errors would hit the other items too. A time-out may come from one locked row.
        if (error instanceof LeaseLostError || isUnreachable(error)) throw error;
        if (batch.length === 1) this.logFailure(error, batch[0]!);
        else written += await this.write(term, batch, work, Math.ceil(batch.length / 2));
      }
    }
    return written;
  }

  private logFailure(error: unknown, { sandboxId }: SandboxRef): void {
    this.ctx.log.error({ err: error, sandboxId }, 'a sandbox could not be reconciled');
  }

  /** Commits only within the term. */
  private async inTerm(term: Term, work: (tx: EventSql) => Promise<void | RunChange[]>): Promise<void> {
    const changes = await inTransaction(this.ctx.pool, async (tx) => {
      await term.assertHeld(tx);
      return work(tx);
    });
    for (const change of changes ?? []) {
      if (change.kind === 'started') this.ctx.meters.runStarted(change.seconds);
      else this.ctx.meters.runEnded(change.reason, change.seconds);
    }
  }

  private async expireTimed(term: Term): Promise<void> {
    for (const { row, held } of this.scope.timed.values()) {
      if (held?.state !== 'running' || this.calls.has(row.sandboxId)) continue;
      try {
        await this.expire(term, row);
      } catch (error) {
        if (error instanceof LeaseLostError) throw error;
        this.logFailure(error, row);
      }
    }
  }

  private async expire(term: Term, row: ReconcileRow): Promise<void> {
    const { ctx } = this;
    if (row.wanted.status !== 'running' || !isOver(row, ctx.now())) return;
    await this.endRun(term, row, 'max_duration_exceeded');
  }

  private async endRun(
    term: Term,
    { orgId, sandboxId, wanted }: ReconcileRow,
    reason: StopReason,
  ): Promise<void> {
    await this.inTerm(term, async (tx) => {
      const sandbox = await lockSandbox(tx, orgId, { id: sandboxId, orWarm: true });
      if (sandbox?.status !== 'running' || sandbox.run_id !== wanted.runId) return;
      if (reason === 'max_duration_exceeded' && !(await this.isOverNow(tx, orgId, wanted.runId))) return;
      if (reason === 'idle_timeout' && sandbox.run_spec?.pausesWhenIdle === true)
        await requestPause(tx, sandbox, RECONCILER, reason, this.ctx.now());
      else await requestStop(tx, sandbox, RECONCILER, reason, this.ctx.now());
    });
  }

  /** A create may have taken the run from a pool since the pass read it, and with it a later end. */
  private async isOverNow(tx: EventSql, orgId: string, runId: string | null): Promise<boolean> {
    const [run] = runId === null ? [] : await readRunTimes(tx, [{ orgId, runId }]);
    if (!run) return false;
    return isOver({ maxDurationSecs: run.max_duration_secs, startedAt: run.started_at }, this.ctx.now());
  }

  /** Shows which starts wait for room in the engine. */
  private async noteRoom(
    term: Term,
    ids: ReadonlySet<string> | undefined,
    rows: readonly ReconcileRow[],
    holdings: ReadonlyMap<string, Holding>,
  ): Promise<void> {
    const { accepted, refused } = waitingStarts(rows, holdings);
    await this.writeRoom(term, accepted);
    const waiting = new Set([...accepted.map(({ runId }) => runId), ...refused]);
    // A pass over some sandboxes knows nothing of the runs of others.
    const visited = ids && new Set(rows.map(({ wanted }) => wanted.runId));
    this.room.forget((runId) => !waiting.has(runId) && (visited?.has(runId) ?? true));
  }

  private async noteUnanswered(term: Term, rows: readonly ReconcileRow[]): Promise<void> {
    const changed = this.unanswered.changed(rows);
    if (changed.length > 0) await this.inTerm(term, (tx) => writeUnanswered(tx, changed, this.ctx.now()));
  }

  private async writeRoom(term: Term, notices: readonly RoomNotice[]): Promise<void> {
    const changed = this.room.changed(notices);
    if (changed.length === 0) return;
    await this.inTerm(term, (tx) => writeRoomNotices(tx, changed, this.ctx.now()));
    this.room.written(changed);
  }

  /**
   * Notes which runs still run. A run whose container disappeared with its record ends at the last note. Also, a pass
   * over some sandboxes notes the runs that it stops.
   */
  private async touch(
    rows: ReconcileRow[],
    holdings: ReadonlyMap<string, Holding>,
    listedAt: Instant,
  ): Promise<void> {
    if (performance.now() - this.lastTouch < TOUCH_INTERVAL_MS) return;
    const running = rows.flatMap(({ orgId, sandboxId, wanted }) =>
      wanted.runStarted && wanted.runOpen && wanted.runId && holdings.get(sandboxId)?.state === 'running'
        ? [{ orgId, runId: wanted.runId }]
        : [],
    );
    if (running.length > 0) await touchRuns(this.ctx.pool, running, listedAt);
    this.lastTouch = performance.now();
  }
}

function isOver(
  { maxDurationSecs, startedAt }: Pick<ReconcileRow, 'maxDurationSecs' | 'startedAt'>,
  at: Instant,
): boolean {
  if (maxDurationSecs === null || startedAt === null) return false;
  return microsOf(at) - microsOf(startedAt) >= BigInt(maxDurationSecs) * 1_000_000n;
}
