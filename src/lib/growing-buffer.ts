const FIRST_BYTES = 1_024;

/** Joins pieces in one piece of memory. A list of them would have an object for each, however small it is. */
export class GrowingBuffer {
  private memory = Buffer.alloc(0);
  private used = 0;

  get length(): number {
    return this.used;
  }

  /** The pieces until now. Later ones do not change them. */
  get bytes(): Buffer {
    return this.memory.subarray(0, this.used);
  }

  push(piece: Buffer): void {
    const needed = this.used + piece.length;
    if (needed > this.memory.length) {
      const grown = Buffer.allocUnsafeSlow(Math.max(needed, 2 * this.memory.length, FIRST_BYTES));
      this.memory.copy(grown, 0, 0, this.used);
      this.memory = grown;
    }
    piece.copy(this.memory, this.used);
    this.used = needed;
  }
}
