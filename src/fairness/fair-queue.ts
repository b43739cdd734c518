import { makeConcurrencyLimit, type Slots } from './concurrency-limit.js';
import { sleep } from '../lib/sleep.js';

export interface SlotHolder {
  /** How long the holder has not used its slot, in milliseconds. */
  idleMs(): number;
  /** `share`: another key, which has no slot, needs this one. */
  cutOff(reason: 'idle' | 'share'): void;
  /** Aborts when the holder no longer wants a slot. */
  gone: AbortSignal;
}

/** A concurrency limit with a queue. A free slot goes to the waiting key that has the fewest slots. */
export interface FairQueue {
  /** Resolves to a function that releases the slot, or to undefined if the caller gets none. */
  acquire(key: string, holder: SlotHolder): Promise<(() => void) | undefined>;
}

export interface FairQueueOptions {
  slots: Slots;
  /** How many may wait. A caller beyond that gets no slot at once. */
  waiting: Slots;
  maxWaitMs: number;
  /** A holder that has been idle for this long is cut off while others wait, in milliseconds. */
  idleMs: number;
  /** A key without a slot gets one of the key with the most after this wait, if that has several. Default: never. */
  shareAfterMs?: number;
}

interface Waiter {
  key: string;
  holder: SlotHolder;
  release: (() => void) | undefined;
  done: AbortController;
}

const IDLE_CHECK_INTERVAL_MS = 200;

export function makeFairQueue({
  slots,
  waiting,
  maxWaitMs,
  idleMs,
  shareAfterMs = Infinity,
}: FairQueueOptions): FairQueue {
  const running = makeConcurrencyLimit(slots);
  const queued = makeConcurrencyLimit(waiting);
  const holders = new Map<SlotHolder, { key: string; isCutOff: boolean }>();
  const queue = new Set<Waiter>();

  function enter(key: string, holder: SlotHolder): (() => void) | undefined {
    const release = running.acquire(key);
    if (!release) return undefined;
    holders.set(holder, { key, isCutOff: false });
    return () => {
      if (!holders.delete(holder)) return;
      release();
      admit();
    };
  }

  /** Among keys with equally many slots, the order is that of arrival. */
  function admit(): void {
    for (const waiter of [...queue].toSorted((a, b) => running.heldBy(a.key) - running.heldBy(b.key))) {
      if (waiter.release || waiter.holder.gone.aborted) continue;
      waiter.release = enter(waiter.key, waiter.holder);
      if (waiter.release) waiter.done.abort();
    }
  }

  /** Cuts off the holder that has been idle for longest, if its slot would help the key. */
  function evictFor(key: string, waitedMs: number): void {
    const atOwnLimit = running.heldBy(key) >= slots.each;
    const candidates = [...holders]
      .filter(([, slot]) => !atOwnLimit || slot.key === key)
      .map(([holder, slot]) => ({ holder, slot, idle: holder.idleMs() }))
      .toSorted((a, b) => b.idle - a.idle);
    // One at a time: the slot that is about to be released may be enough.
    if (candidates.some(({ slot }) => slot.isCutOff)) return;
    const isIdle = (candidates[0]?.idle ?? 0) >= idleMs;
    const isShort = running.heldBy(key) === 0 && waitedMs >= shareAfterMs;
    const most = Math.max(2, ...candidates.map(({ slot }) => running.heldBy(slot.key)));
    const evicted = isIdle
      ? candidates[0]
      : candidates.find(({ slot }) => isShort && running.heldBy(slot.key) === most);
    if (!evicted) return;
    evicted.slot.isCutOff = true;
    evicted.holder.cutOff(isIdle ? 'idle' : 'share');
  }

  return {
    async acquire(key, holder) {
      if (holder.gone.aborted) return undefined;
      const entered = enter(key, holder);
      if (entered) return entered;
      const leaveQueue = queued.acquire(key);
      if (!leaveQueue) return undefined;
      const waiter: Waiter = { key, holder, release: undefined, done: new AbortController() };
      queue.add(waiter);
      const giveUp = () => waiter.done.abort();
      holder.gone.addEventListener('abort', giveUp);
      const since = performance.now();
      const evict = () => evictFor(key, performance.now() - since);
      evict();
      const timer = setInterval(evict, IDLE_CHECK_INTERVAL_MS);
      await sleep(maxWaitMs, waiter.done.signal);
      clearInterval(timer);
      holder.gone.removeEventListener('abort', giveUp);
      queue.delete(waiter);
      leaveQueue();
      return waiter.release;
    },
  };
}
