interface Limits {
  total: number;
  each: number;
  /** A key that holds less is never over the budget, whatever the others hold. */
  base: number;
}

/** Counts the bytes that are held in memory, in total and for each key. */
export class ByteBudget {
  private readonly held = new Map<string, number>();
  private all = 0;

  constructor(private readonly limits: Limits) {}

  /** `bytes`: negative when they are released. */
  add(key: string, bytes: number): void {
    this.all += bytes;
    const left = (this.held.get(key) ?? 0) + bytes;
    if (left === 0) this.held.delete(key);
    else this.held.set(key, left);
  }

  isOver(key: string): boolean {
    const { total, each, base } = this.limits;
    const own = this.held.get(key) ?? 0;
    return own > each || (this.all > total && own > base);
  }
}
