/** A row whose place among others is known: UTC day, name, id, and how it leaves. */
export type LooseRow = [day: string, name: string, id: string, line: string];
/** One of the stored days, in order. */
export type StoredRow = [line: string, name: string];

/** Where day and id stand in a line. */
export interface Positions {
  day: number;
  id: number;
}

const DAY_LENGTH = 10;
const ID_LENGTH = 36;

/**
 * Two ordered sequences as one. Where both have a row of the same day and id, the loose one stands for both. Nothing but the
 * day of a stored row is looked at as long as it is before that of the next loose one.
 */
export async function* mergeRows(
  stored: AsyncIterable<StoredRow[]>,
  loose: AsyncIterable<LooseRow[]>,
  positions: Positions,
): AsyncGenerator<string[]> {
  const later = loose[Symbol.asyncIterator]();
  let batch: LooseRow[] = [];
  let at = 0;
  const next = async (): Promise<LooseRow | undefined> => {
    if (at === batch.length) {
      const { done, value } = await later.next();
      if (done === true) return undefined;
      [batch, at] = [value, 0];
    }
    return batch[at++];
  };
  let pending = await next();
  for await (const rows of stored) {
    const lines: string[] = [];
    for (const [line, name] of rows) {
      let order = pending ? compareRow(name, line, pending, positions) : -1;
      while (pending && order > 0) {
        lines.push(pending[3]);
        pending = await next();
        order = pending ? compareRow(name, line, pending, positions) : -1;
      }
      if (order < 0) lines.push(line);
    }
    yield lines;
  }
  while (pending) {
    const lines = [pending[3]];
    while (at < batch.length) lines.push(batch[at++]![3]);
    yield lines;
    pending = await next();
  }
}

function compareRow(name: string, line: string, loose: LooseRow, { day, id }: Positions): number {
  const stored = line.slice(day, day + DAY_LENGTH);
  if (stored !== loose[0]) return stored < loose[0] ? -1 : 1;
  if (name !== loose[1]) return compareNames(name, loose[1]);
  const storedId = line.slice(id, id + ID_LENGTH);
  return storedId === loose[2] ? 0 : storedId < loose[2] ? -1 : 1;
}

/** As the database orders: by the bytes of UTF-8. */
function compareNames(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
