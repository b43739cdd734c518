import type { WebhookRow } from './queries.js';

type Webhook = Pick<WebhookRow, 'org_id' | 'id'>;

/** Orders webhooks so that an organization with many of them is served no more often than one with a single webhook. */
export class RoundRobin {
  /** When organizations and webhooks were last served, counted in servings. */
  private readonly lastServed = new Map<string, number>();
  private count = 0;

  recordServed({ org_id, id }: Webhook): void {
    this.count += 1;
    this.lastServed.set(org_id, this.count);
    this.lastServed.set(id, this.count);
  }

  /**
   * The next webhook is one whose organization has the fewest slots, counting the webhooks before it in the order; then one
   * whose organization was served longest ago; then the one that was. `serving`: the webhooks that have a slot.
   */
  order<T extends Webhook>(waiting: readonly T[], serving: Iterable<Webhook>): T[] {
    const known = new Set<string>();
    const slots = new Map<string, number>();
    const addSlot = ({ org_id, id }: Webhook) => {
      known.add(org_id).add(id);
      const before = slots.get(org_id) ?? 0;
      slots.set(org_id, before + 1);
      return before;
    };
    for (const webhook of serving) addSlot(webhook);
    const ranked = waiting
      .toSorted((a, b) => this.servedAt(a.id) - this.servedAt(b.id))
      .map((webhook) => ({ webhook, before: addSlot(webhook) }))
      .toSorted(
        (a, b) => a.before - b.before || this.servedAt(a.webhook.org_id) - this.servedAt(b.webhook.org_id),
      );
    for (const id of this.lastServed.keys()) if (!known.has(id)) this.lastServed.delete(id);
    return ranked.map(({ webhook }) => webhook);
  }

  private servedAt(id: string): number {
    return this.lastServed.get(id) ?? 0;
  }
}
