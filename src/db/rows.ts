import type { Transaction } from './transaction.js';

const BATCH = 2_000;

/**
 * The rows of a query in batches, through a cursor: neither side ever holds all of them. The next batch is on its way while
 * the one before is worked on. `name`: of the cursor; one at a time of that name in a transaction. Rows are lists of values,
 * in the order of the columns.
 */
export async function* rowsOf<Row extends unknown[]>(
  tx: Transaction,
  name: string,
  { text, values }: { text: string; values: readonly unknown[] },
): AsyncGenerator<Row[]> {
  await tx.query(`declare ${name} no scroll cursor for ${text}`, values);
  const fetch = async () => {
    const { rows } = await tx.query<Row>({ text: `fetch ${BATCH} from ${name}`, rowMode: 'array' });
    return rows;
  };
  for (let next = fetch(); ;) {
    const rows = await next;
    const last = rows.length < BATCH;
    if (!last) {
      next = fetch();
      // When nobody asks for it any more, nobody hears that it failed either.
      next.catch(() => undefined);
    }
    if (rows.length > 0) yield rows;
    if (last) break;
  }
  await tx.query(`close ${name}`);
}
