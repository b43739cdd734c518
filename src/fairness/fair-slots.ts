import type { Slots } from './concurrency-limit.js';

interface Waiter {
  grant: () => void;
  timer: NodeJS.Timeout | undefined;
}

interface FairSlotsOptions extends Slots {
  /** `most`: of a key. Default: callers wait for as long as it takes. */
  wait?: { maxMs: number; most: number; refusal: () => Error };
}

/**
 * Slots for short work, such as a statement. A key holds `each` of them at most. A free slot goes to the waiting key that holds the
 * fewest; of several, to the one that was served the longest time ago. So a key waits for one slot of each other key at most.
 */
export class FairSlots {
  private free: number;
  private readonly held = new Map<string, number>();
  private readonly queues = new Map<string, Set<Waiter>>();

  constructor(private readonly options: FairSlotsOptions) {
    this.free = options.total;
  }

  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    const turn = this.acquire(key);
    if (turn !== true) await turn;
    try {
      return await work();
    } finally {
      this.release(key);
    }
  }

  /** True: the caller has a slot now. Otherwise it has one when the promise resolves. Each slot needs one `release`. */
  acquire(key: string): true | Promise<void> {
    if (this.free > 0 && this.take(key)) return true;
    const { wait } = this.options;
    const queue = this.queues.get(key) ?? new Set();
    if (wait && queue.size >= wait.most) return Promise.reject(wait.refusal());
    this.queues.set(key, queue);
    return new Promise((resolve, reject) => {
      const giveUp = () => {
        queue.delete(waiter);
        if (queue.size === 0) this.queues.delete(key);
        reject(wait!.refusal());
      };
      const waiter: Waiter = { grant: resolve, timer: wait && setTimeout(giveUp, wait.maxMs) };
      queue.add(waiter);
    });
  }

  release(key: string): void {
    const left = this.held.get(key)! - 1;
    if (left === 0) this.held.delete(key);
    else this.held.set(key, left);
    this.free += 1;
    if (this.queues.size > 0) this.grantNext();
  }

  private take(key: string): boolean {
    const held = this.held.get(key) ?? 0;
    if (held >= this.options.each) return false;
    this.held.set(key, held + 1);
    this.free -= 1;
    return true;
  }

  private grantNext(): void {
    const key = this.nextKey();
    if (key === undefined || !this.take(key)) return;
    const queue = this.queues.get(key)!;
    const waiter = queue.values().next().value!;
    queue.delete(waiter);
    this.queues.delete(key);
    if (queue.size > 0) this.queues.set(key, queue);
    clearTimeout(waiter.timer);
    waiter.grant();
  }

  private nextKey(): string | undefined {
    let [fewest, next]: [number, string | undefined] = [this.options.each, undefined];
    for (const key of this.queues.keys()) {
      const held = this.held.get(key) ?? 0;
      if (held < fewest) [fewest, next] = [held, key];
      if (held === 0) break;
    }
    return next;
  }
}
