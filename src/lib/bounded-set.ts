/** A set of hints that may be forgotten: when it is full, it is cleared. */
export class BoundedSet {
  private readonly values = new Set<string>();

  constructor(private readonly maxSize = 10_000) {}

  has(value: string): boolean {
    return this.values.has(value);
  }

  add(value: string): void {
    if (this.values.size >= this.maxSize) this.values.clear();
    this.values.add(value);
  }

  delete(value: string): void {
    this.values.delete(value);
  }
}
