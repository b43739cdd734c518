const MIB = 1024 ** 2;

export interface StoredLimits {
  /** Bytes of an item that do not count. */
  freeBytes: number;
  /** The bytes beyond them that one owner may have stored. */
  maxBytes: number;
}

/** The sum is read again after so many new bytes. */
const MEASURE_EVERY_BYTES = 16 * MIB;
const MEASURE_AGAIN_MS = 10_000;

interface Count {
  /** The bytes since the sum was read. Other processes count for themselves. */
  fresh: number;
  stored: number;
  measuredAt: number;
}

/**
 * Bounds what the owners of items have in a store, whose sum takes time to read. An owner that stores little costs no
 * reading.
 */
export class StoredBytes {
  private readonly counts = new Map<string, Count>();

  constructor(private readonly limits: StoredLimits) {}

  add(owner: string, bytes: number): void {
    const { freeBytes } = this.limits;
    if (bytes <= freeBytes) return;
    const count = this.counts.get(owner) ?? { fresh: 0, stored: 0, measuredAt: -Infinity };
    count.fresh += bytes - freeBytes;
    this.counts.set(owner, count);
  }

  /** `measure`: the sum that is stored now, of the bytes of each item beyond `freeBytes`. */
  async isFull(owner: string, measure: (freeBytes: number) => Promise<number>): Promise<boolean> {
    const { freeBytes, maxBytes } = this.limits;
    const count = this.counts.get(owner);
    if (!count) return false;
    const wasFull = count.stored >= maxBytes;
    const isDue = wasFull
      ? performance.now() - count.measuredAt >= MEASURE_AGAIN_MS
      : count.fresh >= Math.min(MEASURE_EVERY_BYTES, maxBytes);
    if (!isDue) return wasFull;
    // Before the measurement, so that concurrent requests do not begin another.
    Object.assign(count, { fresh: 0, measuredAt: performance.now() });
    count.stored = await measure(freeBytes);
    return count.stored >= maxBytes;
  }
}
