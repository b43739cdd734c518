import { Rotation } from './rotation.js';
import { Slots, type Release, type SlotLimits } from './slots.js';

export interface SlotQueueOptions extends SlotLimits {
  /** The most callers that wait. Default: any number. */
  waiting?: SlotLimits;
  /** Default: callers wait for as long as it takes. */
  maxWaitMs?: number;
  /** The error of a caller that gets no slot. */
  refusal?: () => Error;
}

interface Waiter {
  settle: (release?: Release) => void;
}

/**
 * Slots for which callers wait. A free slot goes to the waiting owner that holds the fewest; of several, to the one
 * that was served the longest time ago. So an owner without a slot waits for one release of each other owner at most,
 * however many callers those have.
 */
export class SlotQueue {
  private readonly slots: Slots;
  private readonly waiting: Slots;
  private readonly waiters = new Rotation<Waiter>();

  constructor(private readonly options: SlotQueueOptions) {
    this.slots = new Slots(options);
    this.waiting = new Slots(options.waiting ?? { total: Infinity, each: Infinity });
  }

  get waits(): number {
    return this.waiters.size;
  }

  heldBy(owner: string): number {
    return this.slots.heldBy(owner);
  }

  /** Without a wait. While a slot is free, every waiting owner holds as many as it may, so this overtakes nobody. */
  tryAcquire(owner: string): Release | undefined {
    const release = this.slots.acquire(owner);
    return release && this.releaseOf(release);
  }

  /** Undefined: too many wait, the wait was too long, or the signal was aborted. */
  async acquire(owner: string, signal?: AbortSignal): Promise<Release | undefined> {
    if (signal?.aborted === true) return undefined;
    return this.tryAcquire(owner) ?? this.wait(owner, signal);
  }

  /** Throws the refusal of the options, or the reason of the signal, if the caller gets no slot. */
  async hold(owner: string, signal?: AbortSignal): Promise<Release> {
    const release = await this.acquire(owner, signal);
    if (release) return release;
    signal?.throwIfAborted();
    throw this.options.refusal?.() ?? new Error('no slot was free in time');
  }

  /** Throws as `hold`. */
  async run<T>(owner: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    signal?.throwIfAborted();
    // Without a wait where there is none: each one costs an iteration of the microtasks.
    const release = this.tryAcquire(owner) ?? (await this.hold(owner, signal));
    try {
      return await work();
    } finally {
      release();
    }
  }

  private async wait(owner: string, signal: AbortSignal | undefined): Promise<Release | undefined> {
    const leave = this.waiting.acquire(owner);
    if (!leave) return undefined;
    return new Promise((resolve) => {
      const giveUp = () => {
        if (this.waiters.delete(owner, waiter)) waiter.settle();
      };
      const { maxWaitMs = Infinity } = this.options;
      const timer = maxWaitMs === Infinity ? undefined : setTimeout(giveUp, maxWaitMs);
      const waiter: Waiter = {
        settle: (release) => {
          clearTimeout(timer);
          signal?.removeEventListener('abort', giveUp);
          leave();
          resolve(release);
        },
      };
      this.waiters.add(owner, waiter);
      signal?.addEventListener('abort', giveUp, { once: true });
    });
  }

  private releaseOf(release: Release): Release {
    let isHeld = true;
    return () => {
      if (!isHeld) return;
      isHeld = false;
      release();
      if (this.waiters.size > 0) this.grantNext();
    };
  }

  /** A release makes at most one waiting owner able to have a slot more. */
  private grantNext(): void {
    const owner = this.nextOwner();
    const release = owner === undefined ? undefined : this.tryAcquire(owner);
    if (release) this.waiters.takeOf(owner!)!.settle(release);
  }

  private nextOwner(): string | undefined {
    let [fewest, next]: [number, string | undefined] = [this.options.each, undefined];
    for (const owner of this.waiters.owners()) {
      const held = this.slots.heldBy(owner);
      if (held < fewest) [fewest, next] = [held, owner];
      if (held === 0) break;
    }
    return next;
  }
}
