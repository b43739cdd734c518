import { createHash } from 'node:crypto';
import { PRICES } from '../audit/events/actor.js';
import { canonicalJson } from '../audit/events/canonical-json.js';
import { recordEvent } from '../audit/events/record.js';
import { exchangePriceBook } from '../db/instance-queries.js';
import type { Pool } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { now } from '../lib/instant.js';
import { decimalText, METRICS, type PriceBook } from '../prices/price.js';
import { listOrgIds } from './queries.js';

/**
 * Stores the hash of the price book of a service that starts. If it differs from the previous one, every organization
 * gets an event.
 */
export async function recordPriceBook(pool: Pool, book: PriceBook | null): Promise<void> {
  const sha256 = book && hashOf(book);
  await inTransaction(pool, async (tx) => {
    const previous = await exchangePriceBook(tx, sha256);
    if (previous === sha256) return;
    const at = now();
    for (const orgId of await listOrgIds(tx)) {
      await recordEvent(tx, {
        orgId,
        type: 'price_book_changed',
        actor: PRICES,
        resourceId: null,
        at,
        payload: { sha256, previous_sha256: previous, currency: book?.currency ?? null },
      });
    }
  });
}

/** Equal amounts have equal hashes, in any notation. */
function hashOf({ currency, minorUnitDigits, prices, included }: PriceBook): string {
  const texts = (amounts: PriceBook['prices']) =>
    Object.fromEntries(METRICS.map((metric) => [metric, decimalText(amounts[metric])]));
  const content = {
    currency,
    minor_unit_digits: minorUnitDigits,
    prices: texts(prices),
    included: texts(included),
  };
  return createHash('sha256').update(canonicalJson(content)).digest('hex');
}
