/** Random decisions, repeatable with the same seed. */
export class Dice {
  constructor(private state: number) {}

  /** At least 0, below 1: "mulberry32", a short generator that is good enough for choices. */
  private next(): number {
    this.state = (this.state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number from `from` to `to`, both included. */
  between(from: number, to: number): number {
    return from + Math.floor(this.next() * (to - from + 1));
  }

  chance(share: number): boolean {
    return this.next() < share;
  }

  oneOf<T>(list: readonly T[]): T {
    return list[this.between(0, list.length - 1)]!;
  }

  /** Picks a name with probability in proportion to its weight. */
  weighted<Name extends string>(weights: Record<Name, number>): Name {
    const entries = Object.entries(weights) as [Name, number][];
    let left = this.next() * entries.reduce((sum, [, weight]) => sum + weight, 0);
    for (const [name, weight] of entries) {
      left -= weight;
      if (left < 0) return name;
    }
    return entries.at(-1)![0];
  }

  /** A seed for an independent sequence. */
  seed(): number {
    return this.between(1, 2 ** 31 - 1);
  }
}
