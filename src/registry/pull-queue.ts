import { ReclaimedSlots } from '../fairness/reclaimed-slots.js';
import { PULL_TIMEOUT_MS, PULLS, SHARE_AFTER_MS, SLOW_PULL, WAITING_PULLS } from './limits.js';
import { PullError } from './pull-error.js';
import { Pull } from './pull.js';

/** A bounded number of pulls at once, shared fairly between organizations. */
export class PullQueue {
  private readonly queue = new ReclaimedSlots({
    ...PULLS,
    waiting: WAITING_PULLS,
    maxWaitMs: PULL_TIMEOUT_MS,
    idleMs: SLOW_PULL.ms,
    shareAfterMs: SHARE_AFTER_MS,
  });

  /** `timeoutMs`: for one pull, without its wait for a place. */
  constructor(private readonly timeoutMs: number) {}

  /**
   * A pull that loses its place to another organization begins again. Throws PullError, or the reason of the signal.
   */
  async withSlot<T>(orgId: string, signal: AbortSignal, work: (pull: Pull) => Promise<T>): Promise<T> {
    for (;;) {
      const pull = new Pull(orgId, signal, this.timeoutMs);
      const leave = await this.queue.acquire(orgId, pull);
      try {
        pull.signal.throwIfAborted();
        if (!leave) throw new PullError('busy', 'the queue of pulls is full');
        pull.begin();
        return await work(pull);
      } catch (error) {
        if (!pull.isDisplaced) throw pull.signal.aborted ? pull.signal.reason : error;
      } finally {
        leave?.();
        pull.end();
      }
    }
  }
}
