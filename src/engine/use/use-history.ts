import type { Use } from './use.js';

export const HISTORY_MS = 3_600_000;
const MOST_POINTS = 120;
const FIRST_POINTS = 8;
const FIELDS = [
  ...(['at', 'cpuPercent', 'memoryBytes', 'hostMemoryBytes', 'processes', 'diskBytes'] as const),
  ...(['diskReadBytes', 'diskWrittenBytes', 'receivedBytes', 'sentBytes'] as const),
];

/** The points of the last hour of a sandbox: 80 bytes each, where an object takes several hundred. */
export class UseHistory {
  private values = new Float64Array(FIRST_POINTS * FIELDS.length);
  /** The index of the oldest point. */
  private first = 0;
  private count = 0;

  get lastAt(): number {
    return this.count === 0 ? -Infinity : this.values[this.slot(this.count - 1) * FIELDS.length]!;
  }

  add(use: Use): void {
    if (this.count === this.capacity) {
      if (this.capacity < MOST_POINTS) this.grow();
      else this.dropFirst();
    }
    const begin = this.slot(this.count) * FIELDS.length;
    for (const [index, field] of FIELDS.entries()) this.values[begin + index] = use[field] ?? NaN;
    this.count += 1;
  }

  /** From the oldest. */
  points(now: number): Use[] {
    while (this.count > 0 && this.values[this.first * FIELDS.length]! < now - HISTORY_MS) this.dropFirst();
    return Array.from({ length: this.count }, (_, index) => {
      const begin = this.slot(index) * FIELDS.length;
      const entries = FIELDS.map((field, at) => {
        const value = this.values[begin + at]!;
        return [field, Number.isNaN(value) ? null : value] as const;
      });
      return Object.fromEntries(entries) as unknown as Use;
    });
  }

  private get capacity(): number {
    return this.values.length / FIELDS.length;
  }

  private slot(index: number): number {
    return (this.first + index) % this.capacity;
  }

  private dropFirst(): void {
    this.first = this.slot(1);
    this.count -= 1;
  }

  private grow(): void {
    const before = this.values;
    const ordered = [
      before.subarray(this.first * FIELDS.length),
      before.subarray(0, this.first * FIELDS.length),
    ];
    const points = Math.min(this.capacity * 2, MOST_POINTS);
    this.values = new Float64Array(points * FIELDS.length);
    this.values.set(ordered[0]!);
    this.values.set(ordered[1]!, ordered[0]!.length);
    this.first = 0;
  }
}
