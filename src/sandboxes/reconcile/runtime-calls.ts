import type { Context } from '../../context.js';
import { Slots, type SlotLimits } from '../../fairness/slots.js';
import { sleep } from '../../lib/sleep.js';
import { NoRoomError } from '../../engine/runtime.js';
import type { Term } from '../../workers/lease.js';
import { traceCall } from './trace-call.js';

export type CallKind = 'start' | 'hand_over' | 'stop' | 'pause' | 'kill' | 'destroy';

/**
 * Concurrency limits by kind of call, of all organizations and of each. A slow registry or a thousand slow stops of one
 * organization then delay no other. A stop waits for its grace and a start for its image; the other calls keep the
 * engine busy. Beside these limits an organization has at most as many calls as are free, so a few cannot use them up.
 */
export const CALLS_AT_ONCE: Record<CallKind, SlotLimits> = {
  start: { total: 1_000, each: 64 },
  hand_over: { total: 64, each: 32 },
  stop: { total: 4_000, each: 2_000 },
  // Each writes the memory of a sandbox.
  pause: { total: 8, each: 4 },
  kill: { total: 16, each: 8 },
  destroy: { total: 8, each: 4 },
};

/**
 * A kill or a removal that takes longer hangs in the engine, on a lock of its container: it counts no more against the
 * limits. So many of an organization may hang.
 */
const HANGS_AFTER_MS = 15_000;
const MOST_HANGING = 64;
/** At the end of the service. Calls that hang are then as those of a killed process. */
const LONGEST_CLOSE_MS = 20_000;

/** Kills and removals on a cluster wait for its nodes, which work at the same time. */
const TIMES_ON_CLUSTER = 16;

interface SandboxRef {
  orgId: string;
  sandboxId: string;
}

interface Call {
  kind: CallKind;
  controller: AbortController;
  done: Promise<void>;
}

/** The calls to the runtime in flight, at most one for a sandbox. */
export class RuntimeCalls {
  private readonly busy = new Map<string, Call>();
  private readonly slots = new Map<string, Slots>();
  private readonly hanging = new Slots({ total: Infinity, each: MOST_HANGING });

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

  /** Aborts a call for a sandbox, if one of this kind is in flight. */
  abandon(sandboxId: string, kind: 'start' | 'hand_over'): void {
    const call = this.busy.get(sandboxId);
    if (call?.kind === kind) call.controller.abort();
  }

  /**
   * Begins a call without waiting for it. After the term, or at a concurrency limit, a later pass begins it. A later
   * pass also retries a failed call.
   */
  begin(
    term: Term,
    { orgId, sandboxId }: SandboxRef,
    kind: CallKind,
    work: (signal: AbortSignal) => Promise<void>,
  ): void {
    if (!term.valid) return;
    const slots = this.slotsOf(kind);
    if (slots.heldBy(orgId) >= slots.free || this.hanging.heldBy(orgId) >= MOST_HANGING) return;
    const release = slots.acquire(orgId);
    if (!release) return;
    const controller = new AbortController();
    const signal = AbortSignal.any([controller.signal, term.signal]);
    let hangs = false;
    const hang = () => {
      hangs = true;
      // Also beyond its limit, which only stops later calls.
      this.hanging.add(orgId, 1);
      release();
      this.again();
    };
    const timer =
      kind === 'kill' || kind === 'destroy' ? setTimeout(hang, HANGS_AFTER_MS).unref() : undefined;
    const done = this.run({ orgId, sandboxId }, kind, work(signal)).finally(() => {
      clearTimeout(timer);
      if (hangs) this.hanging.add(orgId, -1);
      else release();
    });
    this.busy.set(sandboxId, { kind, controller, done });
  }

  /** Aborts the starts that wait for an image, and waits for all calls that the engine answers. */
  async close(): Promise<void> {
    for (const { controller } of this.busy.values()) controller.abort();
    const ended = new AbortController();
    const all = Promise.allSettled([...this.busy.values()].map(({ done }) => done));
    await Promise.race([all, sleep(LONGEST_CLOSE_MS, ended.signal)]);
    ended.abort();
  }

  /** A runtime that is not connected yet does not say whether it is a cluster. No call reaches it then. */
  private slotsOf(kind: CallKind): Slots {
    const { total, each } = CALLS_AT_ONCE[kind];
    const times =
      this.ctx.runtime.placesRuns === true && (kind === 'kill' || kind === 'destroy') ? TIMES_ON_CLUSTER : 1;
    const name = `${kind}, ${times}`;
    const slots = this.slots.get(name) ?? new Slots({ total: total * times, each: each * times });
    this.slots.set(name, slots);
    return slots;
  }

  private async run(ref: SandboxRef, step: CallKind, work: Promise<void>): Promise<void> {
    const { sandboxId } = ref;
    const began = performance.now();
    const report = (outcome: 'done' | 'failed', error?: unknown) => {
      this.ctx.meters.runtimeCalled(step, outcome, (performance.now() - began) / 1_000);
      traceCall(this.ctx, ref, { step, began, ended: performance.now(), error });
    };
    try {
      await work;
      report('done');
      this.again();
    } catch (error) {
      report('failed', error);
      const fields = { err: error, sandboxId, step };
      if (error instanceof NoRoomError) this.ctx.log.debug(fields, 'the engine has no room for a start');
      else this.ctx.log.error(fields, 'a call to the runtime failed; it will be tried again');
    } finally {
      this.busy.delete(sandboxId);
    }
  }
}
