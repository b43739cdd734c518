import type { Transaction } from './transaction.js';

const BATCH = 2_000;

/**
 * The rows of a query in batches, through a cursor: neither side ever holds all of them. The next batch is on its way while
 * the one before is worked on. `name`: of the cursor; one at a time of that name in a transaction. Rows are lists of values,
 * in the order of the columns. `size`: rows of a batch.
 */
export async function* rowsOf<Row extends unknown[]>(
  tx: Transaction,
  name: string,
  { text, values }: { text: string; values: readonly unknown[] },
  size = BATCH,
): AsyncGenerator<Row[]> {
  await tx.query(`declare ${name} no scroll cursor for ${text}`, values);
  const fetch = async () => {
    const { rows } = await tx.query<Row>({ text: `fetch ${size} from ${name}`, rowMode: 'array' });
    return rows;
  };
  for await (const rows of fetchAhead(fetch, (batch) => batch.length < size)) {
    if (rows.length > 0) yield rows;
  }
  await tx.query(`close ${name}`);
}

/**
 * What `fetch` gives, one after the other up to the last: the next is on its way while the one before is worked on. `before`: what
 * came before; undefined at first.
 */
export async function* fetchAhead<T>(
  fetch: (before: T | undefined) => Promise<T>,
  isLast: (fetched: T) => boolean,
): AsyncGenerator<T> {
  for (let next = fetch(undefined); ;) {
    const fetched = await next;
    const last = isLast(fetched);
    if (!last) {
      next = fetch(fetched);
      // When nobody asks for it any more, nobody hears that it failed either.
      next.catch(() => undefined);
    }
    yield fetched;
    if (last) return;
  }
}
