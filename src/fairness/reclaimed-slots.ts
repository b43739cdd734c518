import { SlotQueue, type SlotQueueOptions } from './slot-queue.js';
import type { Release } from './slots.js';

export interface SlotHolder {
  /** How long the holder has not used its slot, in milliseconds. */
  idleMs(): number;
  /** `share`: an owner without a slot needs this one. */
  cutOff(reason: 'idle' | 'share'): void;
  /** Aborts when the holder no longer wants a slot. */
  gone: AbortSignal;
}

export interface ReclaimedSlotsOptions extends SlotQueueOptions {
  /** A holder that has been idle for so long is cut off while others wait, in milliseconds. */
  idleMs: number;
  /**
   * After this wait, an owner without a slot gets one of the owner with the most, if that has several. Default: never.
   */
  shareAfterMs?: number;
}

const CHECK_INTERVAL_MS = 200;

interface Held {
  owner: string;
  holder: SlotHolder;
  isCutOff: boolean;
}

/** Slots that a holder loses when it does not use its slot and others wait: downloads, uploads, pulls of images. */
export class ReclaimedSlots {
  private readonly queue: SlotQueue;
  private readonly held = new Set<Held>();

  constructor(private readonly options: ReclaimedSlotsOptions) {
    this.queue = new SlotQueue(options);
  }

  /** Undefined as for SlotQueue. */
  async acquire(owner: string, holder: SlotHolder): Promise<Release | undefined> {
    if (holder.gone.aborted) return undefined;
    const release = this.queue.tryAcquire(owner) ?? (await this.wait(owner, holder));
    if (!release) return undefined;
    const held = { owner, holder, isCutOff: false };
    this.held.add(held);
    return () => {
      this.held.delete(held);
      release();
    };
  }

  private async wait(owner: string, { gone }: SlotHolder): Promise<Release | undefined> {
    const since = performance.now();
    const waiting = this.queue.waits;
    const granted = this.queue.acquire(owner, gone);
    // Too many wait already: a refused caller takes no slot from anybody.
    if (this.queue.waits === waiting) return granted;
    const reclaim = () => this.reclaimFor(owner, performance.now() - since);
    reclaim();
    const timer = setInterval(reclaim, CHECK_INTERVAL_MS);
    try {
      return await granted;
    } finally {
      clearInterval(timer);
    }
  }

  /** Cuts off the holder that has been idle for longest, if its slot would help the owner. */
  private reclaimFor(owner: string, waitedMs: number): void {
    const { each, idleMs, shareAfterMs = Infinity } = this.options;
    const own = this.queue.heldBy(owner);
    const candidates = [...this.held]
      .filter((held) => own < each || held.owner === owner)
      .map((held) => ({ held, idle: held.holder.idleMs() }))
      .toSorted((a, b) => b.idle - a.idle);
    // One at a time: the slot that is about to be released may be enough.
    if (candidates.some(({ held }) => held.isCutOff)) return;
    const isIdle = (candidates[0]?.idle ?? 0) >= idleMs;
    const isShort = own === 0 && waitedMs >= shareAfterMs;
    const most = Math.max(2, ...candidates.map(({ held }) => this.queue.heldBy(held.owner)));
    const lost = isIdle
      ? candidates[0]?.held
      : candidates.find(({ held }) => isShort && this.queue.heldBy(held.owner) === most)?.held;
    if (!lost) return;
    lost.isCutOff = true;
    lost.holder.cutOff(isIdle ? 'idle' : 'share');
  }
}
