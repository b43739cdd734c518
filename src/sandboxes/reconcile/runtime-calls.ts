import type { Context } from '../../context.js';
import type { Term } from '../../workers/lease.js';

export type CallKind = 'start' | 'stop' | 'kill' | 'destroy';

/**
 * Concurrency limits by kind of call, of all organizations and of each. A slow registry or a thousand slow stops of one
 * organization then delay no other. A stop waits for its grace and a start for its image; the other calls keep the engine
 * busy.
 */
const AT_ONCE: Record<CallKind, { all: number; each: number }> = {
  start: { all: 1_000, each: 64 },
  stop: { all: 4_000, each: 2_000 },
  kill: { all: 32, each: 16 },
  destroy: { all: 32, each: 16 },
};

interface Call {
  kind: CallKind;
  orgId: string;
  controller: AbortController;
  done: Promise<void>;
}

/** The calls to the runtime in flight, at most one for a sandbox. */
export class RuntimeCalls {
  private readonly busy = new Map<string, Call>();

  constructor(
    private readonly ctx: Context,
    /** Called after each call: another pass is due. */
    private readonly again: () => void,
  ) {}

  get underWay(): Set<string> {
    return new Set(this.busy.keys());
  }

  has(sandboxId: string): boolean {
    return this.busy.has(sandboxId);
  }

  /** Aborts the start of a sandbox, if one is in flight. */
  abandonStart(sandboxId: string): void {
    const call = this.busy.get(sandboxId);
    if (call?.kind === 'start') call.controller.abort();
  }

  /**
   * Begins a call without waiting for it. After the term, or at a concurrency limit, a later pass begins it. A later pass
   * also retries a failed call.
   */
  begin(
    term: Term,
    { orgId, sandboxId }: { orgId: string; sandboxId: string },
    kind: CallKind,
    work: (signal: AbortSignal) => Promise<void>,
  ): void {
    if (!term.valid) return;
    const alike = [...this.busy.values()].filter((call) => call.kind === kind);
    const own = alike.filter((call) => call.orgId === orgId);
    if (alike.length >= AT_ONCE[kind].all || own.length >= AT_ONCE[kind].each) return;
    const controller = new AbortController();
    const signal = AbortSignal.any([controller.signal, term.signal]);
    const done = this.run(sandboxId, kind, work(signal));
    this.busy.set(sandboxId, { kind, orgId, controller, done });
  }

  /** Aborts the starts that wait for an image, and waits for all calls. */
  async close(): Promise<void> {
    for (const { controller } of this.busy.values()) controller.abort();
    await Promise.allSettled([...this.busy.values()].map(({ done }) => done));
  }

  private async run(sandboxId: string, step: string, work: Promise<void>): Promise<void> {
    try {
      await work;
      this.again();
    } catch (error) {
      const fields = { err: error, sandboxId, step };
      this.ctx.log.error(fields, 'a call to the runtime failed; it will be tried again');
    } finally {
      this.busy.delete(sandboxId);
    }
  }
}
