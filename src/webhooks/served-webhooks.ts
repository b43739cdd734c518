import type { WebhookRow } from './queries.js';

type Waiting = Pick<WebhookRow, 'org_id' | 'id'>;

/** Whose turn it is when there is not room for all. An organization with many webhooks waits no less than one with a single one. */
export class Turns {
  /** The turn in which organizations, and webhooks of theirs that still had something to do, were last served. */
  private readonly last = new Map<string, number>();
  private count = 0;

  note({ org_id, id }: Waiting): void {
    this.count += 1;
    this.last.set(org_id, this.count);
    this.last.set(id, this.count);
  }

  /**
   * First those by which their organization has the fewest places; of these the one whose organization was served longest ago; of
   * one organization the one that was. `served`: those that have a place now.
   */
  order<T extends Waiting>(waiting: readonly T[], served: Iterable<Waiting>): T[] {
    const known = new Set<string>();
    const places = new Map<string, number>();
    const takeOne = ({ org_id, id }: Waiting) => {
      known.add(org_id).add(id);
      const before = places.get(org_id) ?? 0;
      places.set(org_id, before + 1);
      return before;
    };
    for (const each of served) takeOne(each);
    const ranked = waiting
      .toSorted((a, b) => this.of(a.id) - this.of(b.id))
      .map((each) => ({ each, before: takeOne(each) }))
      .toSorted((a, b) => a.before - b.before || this.of(a.each.org_id) - this.of(b.each.org_id));
    for (const id of this.last.keys()) if (!known.has(id)) this.last.delete(id);
    return ranked.map(({ each }) => each);
  }

  private of(id: string): number {
    return this.last.get(id) ?? 0;
  }
}
