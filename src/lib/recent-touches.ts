const MAX_KEPT = 10_000;
const SAMPLE_MS = 1_000;

/** Something that moves bytes for a key. */
interface Source {
  bytes: () => number;
  last: number;
}

/** The latest time of each key, on the monotonic clock, in milliseconds. The oldest are forgotten. */
export class RecentTouches {
  private readonly times = new Map<string, number>();
  private readonly sources = new Map<string, Set<Source>>();
  private samples: NodeJS.Timeout | undefined;

  touch(key: string): void {
    // A map keeps the order of insertion.
    this.times.delete(key);
    this.times.set(key, performance.now());
    if (this.times.size > MAX_KEPT) this.times.delete(this.times.keys().next().value!);
  }

  at(key: string): number | undefined {
    this.sample(key);
    return this.times.get(key);
  }

  /**
   * Touches the key while `bytes`, a total, grows. It is read every second and for `at`, which is cheaper than a call
   * for each piece of data. Returns a function that ends it.
   */
  watch(key: string, bytes: () => number): () => void {
    const source = { bytes, last: bytes() };
    const sources = this.sources.get(key) ?? new Set();
    this.sources.set(key, sources.add(source));
    this.samples ??= setInterval(() => this.sampleAll(), SAMPLE_MS).unref();
    return () => {
      if (!sources.has(source)) return;
      this.sample(key);
      sources.delete(source);
      if (sources.size === 0) this.sources.delete(key);
      if (this.sources.size > 0) return;
      clearInterval(this.samples);
      this.samples = undefined;
    };
  }

  private sampleAll(): void {
    for (const key of this.sources.keys()) this.sample(key);
  }

  private sample(key: string): void {
    let hasGrown = false;
    for (const source of this.sources.get(key) ?? []) {
      const total = source.bytes();
      hasGrown ||= total > source.last;
      source.last = total;
    }
    if (hasGrown) this.touch(key);
  }
}
