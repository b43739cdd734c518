import type { Transaction } from '../../db/transaction.js';
import { startOfMonth } from '../../lib/instant.js';
import type { EventContent } from '../events/content.js';
import { Wrong } from './walk.js';

/** The months in which a log has events of each type: what is missing of them in `event_months`, lists do not show. */
export class MonthsMet {
  private readonly met = new Set<string>();

  /** To be called with each event that is there. */
  meet({ event_type, category, occurred_at }: EventContent): void {
    this.met.add(JSON.stringify([event_type, category, startOfMonth(occurred_at)]));
  }

  /** To be called behind the last one. Throws Wrong. */
  async finish(tx: Transaction, orgId: string): Promise<void> {
    const { rows } = await tx.query<Record<'event_type' | 'category' | 'month', string>>(
      'select event_type, category, month from event_months where org_id = $1',
      [orgId],
    );
    const noted = new Set(
      rows.map(({ event_type, category, month }) => JSON.stringify([event_type, category, month])),
    );
    const missing = [...this.met].find((one) => !noted.has(one));
    if (missing === undefined) return;
    const [type, , month] = JSON.parse(missing) as [string, string, string];
    throw new Wrong(
      `lists do not show the ${type} events of ${month.slice(0, 7)}: that there are any was removed from event_months`,
    );
  }
}
