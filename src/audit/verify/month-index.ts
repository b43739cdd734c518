import type { Transaction } from '../../db/transaction.js';
import { startOfMonth } from '../../lib/instant.js';
import type { EventContent } from '../events/hash-chain.js';
import { VerificationFault } from './verification-fault.js';
import { listedMonths, type ListedMonth } from './verify-queries.js';

/** Checks `event_months`: lists do not find events whose type and month are missing there. */
export class MonthIndexCheck {
  private readonly found = new Map<string, ListedMonth>();

  add({ event_type, category, occurred_at }: EventContent): void {
    const month = { event_type, category, month: startOfMonth(occurred_at) };
    this.found.set(keyOf(month), month);
  }

  /** Called after the last event. Throws VerificationFault. */
  async finish(tx: Transaction, orgId: string): Promise<void> {
    const listed = new Set((await listedMonths(tx, orgId)).map(keyOf));
    for (const [key, { event_type, month }] of this.found) {
      if (listed.has(key)) continue;
      throw new VerificationFault(
        `lists do not show the ${event_type} events of ${month.slice(0, 7)}: their row in event_months was removed`,
      );
    }
  }
}

function keyOf({ event_type, category, month }: ListedMonth): string {
  return JSON.stringify([event_type, category, month]);
}
