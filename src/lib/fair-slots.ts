import type { Slots } from './concurrency-limit.js';

interface Waiter {
  settle: (granted: boolean) => void;
  timer: NodeJS.Timeout;
}

interface FairSlotsOptions extends Slots {
  maxWaitMs: number;
  maxWaiting: number;
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

  /** True: the caller has a slot now. Each granted slot needs one `release`. */
  acquire(key: string): true | Promise<boolean> {
    if (this.free > 0 && this.take(key)) return true;
    const queue = this.queues.get(key) ?? new Set();
    if (queue.size >= this.options.maxWaiting) return Promise.resolve(false);
    this.queues.set(key, queue);
    return new Promise((settle) => {
      const waiter: Waiter = {
        settle,
        timer: setTimeout(() => this.leave(key, waiter), this.options.maxWaitMs),
      };
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
    waiter.settle(true);
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

  private leave(key: string, waiter: Waiter): void {
    const queue = this.queues.get(key)!;
    queue.delete(waiter);
    if (queue.size === 0) this.queues.delete(key);
    waiter.settle(false);
  }
}
