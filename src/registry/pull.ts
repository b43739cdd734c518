import type { SlotHolder } from '../fairness/reclaimed-slots.js';
import { SLOW_PULL } from './limits.js';
import { PullError } from './pull-error.js';

/** One use of a place among the pulls. */
export class Pull implements SlotHolder {
  /** Its place went to an organization that had none. */
  isDisplaced = false;
  private waits = false;
  readonly ended: Promise<void>;
  private readonly over = new AbortController();
  private readonly stop: () => void;
  private timer: NodeJS.Timeout | undefined;
  private left = SLOW_PULL.bytes;
  private markedAt = performance.now();

  constructor(
    readonly orgId: string,
    readonly gone: AbortSignal,
    private readonly timeoutMs: number,
  ) {
    this.stop = () => this.over.abort(gone.reason);
    if (gone.aborted) this.stop();
    gone.addEventListener('abort', this.stop, { once: true });
    this.ended = new Promise((resolve) =>
      this.signal.addEventListener('abort', () => resolve(), { once: true }),
    );
  }

  get signal(): AbortSignal {
    return this.over.signal;
  }

  begin(): void {
    this.markedAt = performance.now();
    const minutes = this.timeoutMs / 60_000;
    const late = () =>
      this.over.abort(new PullError('too_slow', `it was not pulled within ${minutes} minutes`));
    this.timer = setTimeout(late, this.timeoutMs);
  }

  end(): void {
    clearTimeout(this.timer);
    this.gone.removeEventListener('abort', this.stop);
  }

  /** Time that the pull needs for something else than its registry. */
  pause(): void {
    this.waits = true;
  }

  resume(): void {
    this.waits = false;
    this.markedAt = performance.now();
  }

  idleMs(): number {
    return this.waits ? 0 : performance.now() - this.markedAt;
  }

  cutOff(reason: 'idle' | 'share'): void {
    this.isDisplaced = reason === 'share';
    this.over.abort(new PullError('too_slow', 'it was cut off while others waited'));
  }

  async *count(body: AsyncIterable<Buffer>, onBytes: (bytes: number) => void): AsyncGenerator<Buffer> {
    for await (const chunk of body) {
      onBytes(chunk.length);
      this.advance(chunk.length);
      yield chunk;
    }
    this.advance(SLOW_PULL.blobBytes);
  }

  private advance(bytes: number): void {
    this.left -= bytes;
    if (this.left > 0) return;
    this.left = SLOW_PULL.bytes;
    this.markedAt = performance.now();
  }
}
