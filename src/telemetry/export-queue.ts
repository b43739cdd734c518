import { sleep } from '../lib/sleep.js';

export type ExportOutcome = 'exported' | 'dropped' | 'failed';

export interface ExportQueueOptions<Item> {
  /** The most items that wait. Later ones are dropped. */
  most: number;
  batch: number;
  everyMs: number;
  /** Rejects when the collector did not accept the items. */
  send: (items: Item[]) => Promise<void>;
  count: (outcome: ExportOutcome, items: number) => void;
  onSent: (error: Error | undefined) => void;
}

/**
 * Holds a bounded number of items, and sends them in batches, one at a time. A slow collector costs items, not memory
 * or requests.
 */
export class ExportQueue<Item> {
  private waiting: Item[] = [];
  private timer: NodeJS.Timeout | undefined;
  private sending: Promise<void> | undefined;
  private closed = false;

  constructor(private readonly options: ExportQueueOptions<Item>) {}

  add(item: Item): void {
    const { most, batch, count } = this.options;
    if (this.closed || this.waiting.length >= most) return count('dropped', 1);
    this.waiting.push(item);
    if (this.waiting.length >= batch) this.begin(batch);
    else this.sendLater();
  }

  /** Sends the rest within this time, and drops the items that are left then. */
  async close(millis: number): Promise<void> {
    this.closed = true;
    clearTimeout(this.timer);
    const over = new AbortController();
    const sent = (async () => {
      await this.sending;
      await this.sendWhile(1);
    })();
    await Promise.race([sent, sleep(millis, over.signal)]);
    over.abort();
    const left = this.waiting.splice(0).length;
    if (left > 0) this.options.count('dropped', left);
  }

  private sendLater(): void {
    if (this.sending) return;
    this.timer ??= setTimeout(() => this.begin(1), this.options.everyMs).unref();
  }

  /** Sends while at least `least` items wait. */
  private begin(least: number): void {
    clearTimeout(this.timer);
    this.timer = undefined;
    this.sending ??= this.sendWhile(least).finally(() => {
      this.sending = undefined;
      if (this.waiting.length > 0 && !this.closed) this.sendLater();
    });
  }

  private async sendWhile(least: number): Promise<void> {
    while (this.waiting.length >= least) await this.sendOne(this.waiting.splice(0, this.options.batch));
  }

  private async sendOne(items: Item[]): Promise<void> {
    const { send, count, onSent } = this.options;
    try {
      await send(items);
      count('exported', items.length);
      onSent(undefined);
    } catch (error) {
      count('failed', items.length);
      onSent(error as Error);
    }
  }
}
