import type { Context } from '../../context.js';
import { SlotQueue } from '../../fairness/slot-queue.js';
import { commandStateOf, type CommandState } from '../../guest/command-end.js';
import type { ReconcileRow } from './queries.js';
import type { Timed } from './scope.js';

/**
 * The agent, which a look may have to start, makes a process in the sandbox. The pause doubles up to the longest one.
 */
const FIRST_PAUSE_MS = 2_000;
const LONGEST_PAUSE_MS = 60_000;
/** A guest may stop its agent. */
const LOOK_LIMIT_MS = 5_000;
const LOOKS = { total: 16, each: 4, maxWaitMs: LONGEST_PAUSE_MS };

interface Look {
  dueAt: number;
  pauseMs: number;
}

export interface FoundCommand {
  row: ReconcileRow;
  state: CommandState;
}

/**
 * Looks for the ends of commands whose sandboxes run on. Process 1 keeps the record of the end, so it is found after
 * any restart of the service. The runtime reads it from outside where it can, at each pass. Elsewhere the agent does,
 * ever more rarely.
 */
export class CommandWatch {
  private quick: Promise<void> | undefined;
  private looks = new Map<string, Look>();
  private readonly busy = new Map<string, { over: AbortController; done: Promise<void> }>();
  private readonly queue = new SlotQueue(LOOKS);

  constructor(
    private readonly ctx: Context,
    /** Writes what was found. */
    private readonly write: (found: readonly FoundCommand[]) => Promise<void>,
  ) {}

  /** Begins the looks that are due, without waiting for them. */
  begin(running: readonly Timed[]): void {
    const watched = running.flatMap(({ row, held }) =>
      row.commandRuns && held?.state === 'running' && held.runId === row.wanted.runId ? [row] : [],
    );
    this.quick ??= this.lookFromOutside(watched)
      .catch((error: unknown) =>
        this.ctx.log.error({ err: error }, 'the state of commands could not be read'),
      )
      .finally(() => (this.quick = undefined));
  }

  /** A last look before a stop, within `LOOK_LIMIT_MS`. The end of process 1 takes the record away. */
  async beforeStop(row: ReconcileRow): Promise<void> {
    if (!row.commandRuns) return;
    try {
      const quick = await this.ctx.runtime.commandStates?.([row.sandboxId]);
      const state = quick?.get(row.sandboxId) ?? (await this.ask(row.sandboxId));
      if (state !== undefined && state !== 'running') await this.write([{ row, state }]);
    } catch (error) {
      this.ctx.log.debug(
        { err: error, sandboxId: row.sandboxId },
        'a command was not looked at before a stop',
      );
    }
  }

  async close(): Promise<void> {
    for (const { over } of this.busy.values()) over.abort();
    await Promise.allSettled([this.quick, ...[...this.busy.values()].map(({ done }) => done)]);
  }

  private async lookFromOutside(watched: readonly ReconcileRow[]): Promise<void> {
    if (watched.length === 0) {
      this.looks.clear();
      return;
    }
    const states = await this.ctx.runtime.commandStates?.(watched.map(({ sandboxId }) => sandboxId));
    const found: FoundCommand[] = [];
    const others: ReconcileRow[] = [];
    for (const row of watched) {
      const state = states?.get(row.sandboxId);
      if (state === undefined) others.push(row);
      else if (state !== 'running') found.push({ row, state });
    }
    if (found.length > 0) await this.write(found);
    this.lookByAgents(others);
  }

  private lookByAgents(rows: readonly ReconcileRow[]): void {
    const now = performance.now();
    const before = this.looks;
    this.looks = new Map();
    for (const row of rows) {
      const runId = row.wanted.runId ?? '';
      const look = before.get(runId) ?? { dueAt: now + FIRST_PAUSE_MS, pauseMs: FIRST_PAUSE_MS };
      this.looks.set(runId, look);
      if (now < look.dueAt || this.busy.has(runId)) continue;
      look.pauseMs = Math.min(look.pauseMs * 2, LONGEST_PAUSE_MS);
      const over = new AbortController();
      const done = this.lookByAgent(row, over.signal)
        .catch((error: unknown) =>
          this.ctx.log.debug({ err: error, sandboxId: row.sandboxId }, 'a command was not looked at'),
        )
        .finally(() => {
          this.busy.delete(runId);
          look.dueAt = performance.now() + look.pauseMs;
        });
      this.busy.set(runId, { over, done });
    }
  }

  private async lookByAgent(row: ReconcileRow, gone: AbortSignal): Promise<void> {
    const release = await this.queue.acquire(row.orgId, gone);
    if (!release) return;
    try {
      const state = await this.ask(row.sandboxId, gone);
      if (state !== undefined && state !== 'running') await this.write([{ row, state }]);
    } finally {
      release();
    }
  }

  /** Undefined: the agent does not answer in time. */
  private async ask(sandboxId: string, gone?: AbortSignal): Promise<CommandState | undefined> {
    const asked = (async () => {
      const { guest, release } = await this.ctx.runtime.openGuest(sandboxId);
      try {
        return await commandStateOf(guest);
      } finally {
        release();
      }
    })();
    asked.catch(() => undefined);
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<undefined>((resolve) => {
      timer = setTimeout(() => resolve(undefined), LOOK_LIMIT_MS);
      gone?.addEventListener('abort', () => resolve(undefined), { once: true });
    });
    try {
      return await Promise.race([asked, late]);
    } finally {
      clearTimeout(timer);
    }
  }
}
