import type { Transaction } from './transaction.js';

const BATCH = 2_000;

/**
 * Reads a query in batches through a cursor named `name`. The next batch is in flight while the caller handles the
 * current one.
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

/** Yields the results of `fetch`, which gets the previous result, up to the last. It fetches one result ahead. */
export async function* fetchAhead<T>(
  fetch: (before: T | undefined) => Promise<T>,
  isLast: (fetched: T) => boolean,
): AsyncGenerator<T> {
  for (let next = fetch(undefined); ;) {
    const fetched = await next;
    const last = isLast(fetched);
    if (!last) {
      next = fetch(fetched);
      // The caller may stop before it awaits this promise.
      next.catch(() => undefined);
    }
    yield fetched;
    if (last) return;
  }
}
