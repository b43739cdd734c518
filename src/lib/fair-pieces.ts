import { makeConcurrencyLimit, type ConcurrencyLimit, type Slots } from './concurrency-limit.js';

/** Runs short pieces of work under a concurrency limit. Waiting keys take turns; the pieces of one key keep their order. */
export class FairPieces {
  private readonly limit: ConcurrencyLimit;
  private readonly waiting = new Map<string, (() => void)[]>();

  constructor(slots: Slots) {
    this.limit = makeConcurrencyLimit(slots);
  }

  async run<T>(key: string, piece: () => Promise<T>): Promise<T> {
    const release = (this.waiting.has(key) ? undefined : this.limit.acquire(key)) ?? (await this.turn(key));
    try {
      return await piece();
    } finally {
      release();
      this.admit();
    }
  }

  private async turn(key: string): Promise<() => void> {
    return new Promise((resolve) => {
      const begin = () => resolve(this.limit.acquire(key)!);
      const queue = this.waiting.get(key);
      if (queue) queue.push(begin);
      else this.waiting.set(key, [begin]);
    });
  }

  private admit(): void {
    for (const [key, queue] of this.waiting) {
      if (!this.limit.hasRoom(key)) continue;
      this.waiting.delete(key);
      queue.shift()!();
      if (queue.length > 0) this.waiting.set(key, queue);
      return;
    }
  }
}
