/** A priority queue: a binary heap of items by their ends. */
export class EndQueue<Item> {
  private readonly heap: { end: number; item: Item }[] = [];

  get size(): number {
    return this.heap.length;
  }

  /** The item that ends first. */
  first(): { end: number; item: Item } | undefined {
    return this.heap[0];
  }

  add(end: number, item: Item): void {
    const { heap } = this;
    const added = { end, item };
    let at = heap.push(added) - 1;
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if (heap[parent]!.end <= end) break;
      heap[at] = heap[parent]!;
      at = parent;
    }
    heap[at] = added;
  }

  removeFirst(): void {
    const { heap } = this;
    const last = heap.pop();
    if (!last || heap.length === 0) return;
    let at = 0;
    for (;;) {
      let child = 2 * at + 1;
      if (child + 1 < heap.length && heap[child + 1]!.end < heap[child]!.end) child += 1;
      if (child >= heap.length || heap[child]!.end >= last.end) break;
      heap[at] = heap[child]!;
      at = child;
    }
    heap[at] = last;
  }

  clear(): void {
    this.heap.length = 0;
  }
}
