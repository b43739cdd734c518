import { keyOf, type Refusal } from './refusal.js';

/** `most`: of all sandboxes, about 20 MB. */
export const DENIED_LISTS = { mostOfSandbox: 200, most: 50_000 };

/** `position`: a later one is newer, also after a restart of the process. */
export interface ListedRefusal extends Refusal {
  position: number;
}

/** The latest refusals of each sandbox, in memory. Equal ones are one entry with a count. */
export class DeniedLists {
  /** By sandbox, then by key. The last entry is the newest. */
  private readonly lists = new Map<string, Map<string, ListedRefusal>>();
  private size = 0;
  private position = Date.now() * 1_000;

  constructor(private readonly bounds: typeof DENIED_LISTS = DENIED_LISTS) {}

  add(sandboxId: string, refusal: Refusal): void {
    const list = this.lists.get(sandboxId) ?? new Map<string, ListedRefusal>();
    this.lists.set(sandboxId, list);
    const key = keyOf(refusal);
    const known = list.get(key);
    this.position += 1;
    const entry = {
      ...refusal,
      position: this.position,
      firstAt: known?.firstAt ?? refusal.firstAt,
      count: refusal.count + (known?.count ?? 0),
    };
    if (list.delete(key)) this.size -= 1;
    list.set(key, entry);
    this.size += 1;
    if (list.size > this.bounds.mostOfSandbox) this.dropOldest(list, 1);
    if (this.size > this.bounds.most) this.shortenLongest();
  }

  /** The newest first. `before`: only entries with an earlier position. */
  list(
    sandboxId: string,
    { before, limit }: { before?: number | undefined; limit: number },
  ): ListedRefusal[] {
    const newestFirst = [...(this.lists.get(sandboxId)?.values() ?? [])].toReversed();
    return newestFirst.filter(({ position }) => before === undefined || position < before).slice(0, limit);
  }

  sandboxIds(): string[] {
    return [...this.lists.keys()];
  }

  forget(sandboxId: string): void {
    this.size -= this.lists.get(sandboxId)?.size ?? 0;
    this.lists.delete(sandboxId);
  }

  /** A list loses half of its entries, so that the search for the longest one is rare. */
  private shortenLongest(): void {
    let longest: Map<string, ListedRefusal> | undefined;
    for (const list of this.lists.values()) if (!longest || list.size > longest.size) longest = list;
    if (longest) this.dropOldest(longest, Math.ceil(longest.size / 2));
  }

  private dropOldest(list: Map<string, ListedRefusal>, count: number): void {
    let left = count;
    for (const key of list.keys()) {
      if (left === 0) break;
      list.delete(key);
      left -= 1;
    }
    this.size -= count - left;
  }
}
