import { rowsOf } from '../db/rows.js';
import type { Transaction } from '../db/transaction.js';
import { badParameter } from '../http/errors.js';
import { COMPUTE_METRICS, decimalText, type PriceBook } from '../prices/price.js';
import { arrayOf, csvOf, windowParts } from './breakdown.js';
import { GroupCosts } from './group-costs.js';
import { labelRows, quantitiesOf, type LabelRow } from './label-queries.js';
import type { Format, UsageFilter } from './queries.js';
import type { Window } from './window.js';

/** Each cost takes some microseconds, so other requests have their turns after this many. */
const CHUNK = 200;

export interface LabelQuestion {
  filter: UsageFilter;
  keys: readonly string[];
  window: Window;
  book: PriceBook | null;
}

/** A key twice would have one value twice in each row. */
export function checkLabelKeys(name: string, keys: readonly string[]): void {
  if (new Set(keys).size < keys.length)
    throw badParameter(name, `${name} names a label twice: name each label once`);
}

/**
 * Compute and cost by UTC day and values of labels. Usage with none of the keys is separate, because a label may have
 * any value.
 */
export async function* labelBreakdown(
  tx: Transaction,
  { filter, keys, window, book }: LabelQuestion,
  format: Format,
): AsyncGenerator<string> {
  const costs =
    book && (await GroupCosts.read(tx, filter.orgId, window, { ownBook: book, metrics: COMPUTE_METRICS }));
  // At most one row a day, so memory holds them until the labelled rows are sent.
  const unlabelled: string[] = [];
  async function* rows(): AsyncGenerator<string[]> {
    for (const part of await windowParts(tx, filter.orgId, window)) {
      const query = labelRows(filter, keys, part, format);
      for await (const batch of rowsOf<LabelRow>(tx, 'label_rows', query)) {
        for (let first = 0; first < batch.length; first += CHUNK) {
          const lines: string[] = [];
          for (const row of batch.slice(first, first + CHUNK)) {
            const isKept = format === 'csv' || row[0];
            (isKept ? lines : unlabelled).push(withCost(row, costs, format));
          }
          yield lines;
        }
      }
    }
  }
  const { currency = null, minorUnitDigits = null } = book ?? {};
  if (format === 'csv') {
    const values = keys.length === 1 ? ['value'] : keys.map((key) => `label:${key}`);
    const quantities = ['vcpu_seconds', 'mem_mib_seconds', 'disk_mib_seconds'];
    return yield* csvOf(['day', 'bucket', ...values, ...quantities, 'cost', 'currency'], rows());
  }
  const head = JSON.stringify({
    ...(keys.length === 1 ? { key: keys[0] } : {}),
    keys,
    currency,
    minor_unit_digits: minorUnitDigits,
  });
  yield* arrayOf(`${head.slice(0, -1)},"rows":[`, rows());
  yield `],"unlabelled":[${unlabelled.join(',')}]}`;
}

function withCost([, day, text, ...used]: LabelRow, costs: GroupCosts | null, format: Format): string {
  const cost = costs && decimalText(costs.add(day, quantitiesOf(...used)));
  if (format === 'csv') return `${text},${cost ?? ''},${costs?.book.currency ?? ''}`;
  return `${text},"cost":${cost === null ? 'null' : `"${cost}"`}}`;
}
