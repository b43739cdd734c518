/**
 * Waiting items of several owners. Owners take turns: an owner that was served goes behind the others, however many
 * items it has. The items of one owner keep their order.
 */
export class Rotation<Item> {
  /** From the owner that was served the longest time ago. No queue is empty. */
  private readonly queues = new Map<string, Set<Item>>();
  private count = 0;

  get size(): number {
    return this.count;
  }

  sizeOf(owner: string): number {
    return this.queues.get(owner)?.size ?? 0;
  }

  /** In the order of their turns. */
  owners(): Iterable<string> {
    return this.queues.keys();
  }

  add(owner: string, item: Item): void {
    const queue = this.queues.get(owner);
    if (queue?.has(item) === true) throw new Error('the item waits already');
    if (queue) queue.add(item);
    else this.queues.set(owner, new Set([item]));
    this.count += 1;
  }

  /** Returns false if the item does not wait. */
  delete(owner: string, item: Item): boolean {
    const queue = this.queues.get(owner);
    if (queue?.delete(item) !== true) return false;
    this.count -= 1;
    if (queue.size === 0) this.queues.delete(owner);
    return true;
  }

  /** The first item of the owner whose turn it is. It waits until `delete`. */
  peek(): [owner: string, item: Item] | undefined {
    for (const [owner, queue] of this.queues) for (const item of queue) return [owner, item];
    return undefined;
  }

  /** Ends the turn of the owner. */
  pass(owner: string): void {
    const queue = this.queues.get(owner);
    if (!queue) return;
    this.queues.delete(owner);
    this.queues.set(owner, queue);
  }

  /** Removes the first item of the owner, and ends its turn. */
  takeOf(owner: string): Item | undefined {
    for (const item of this.queues.get(owner) ?? []) {
      this.delete(owner, item);
      this.pass(owner);
      return item;
    }
    return undefined;
  }

  /** Removes the first item of the owner whose turn it is, and ends the turn. */
  take(): Item | undefined {
    for (const owner of this.queues.keys()) return this.takeOf(owner);
    return undefined;
  }
}
