import type { Context } from '../../context.js';
import type { Term } from '../../workers/lease.js';

export type CallKind = 'start' | 'stop' | 'kill' | 'destroy';

/**
 * How many calls of a kind may be under way at once, of all organizations and of one: whoever waits for a slow registry,
 * or stops a thousand sandboxes that do not want to end, keeps nobody else from starting or ending theirs. A stop only
 * waits for its grace, and a start that takes long for its image; the others keep the engine busy.
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

/** The calls to the runtime that are under way, one a sandbox at a time. */
export class Calls {
  private readonly busy = new Map<string, Call>();

  constructor(
    private readonly ctx: Context,
    /** Called when a call has ended and another look is due. */
    private readonly again: () => void,
  ) {}

  /** The sandboxes for which a call is under way now. */
  get underWay(): Set<string> {
    return new Set(this.busy.keys());
  }

  has(sandboxId: string): boolean {
    return this.busy.has(sandboxId);
  }

  /** Abandons the start of a sandbox, if one is under way. */
  abandonStart(sandboxId: string): void {
    const call = this.busy.get(sandboxId);
    if (call?.kind === 'start') call.controller.abort();
  }

  /**
   * Begins a call without waiting for it, unless the term is over or too many are under way: then a later look does. A
   * call that fails is begun again by a later look, too.
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

  /** Waits for the calls under way; starts that only wait for an image are abandoned. */
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
