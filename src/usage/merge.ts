export type SummedRow = [day: string, name: string, id: string, line: string];
/** A stored row. Its day and id are read from the line. */
export type StoredRow = [line: string, name: string];

export interface Positions {
  day: number;
  id: number;
}

const DAY_LENGTH = 10;
const ID_LENGTH = 36;

/** Merges two ordered sequences. A summed row replaces the stored row of the same day and id, which it includes. */
export async function* mergeRows(
  stored: AsyncIterable<StoredRow[]>,
  summed: AsyncIterable<SummedRow[]>,
  positions: Positions,
): AsyncGenerator<string[]> {
  const later = summed[Symbol.asyncIterator]();
  let batch: SummedRow[] = [];
  let at = 0;
  const next = async (): Promise<SummedRow | undefined> => {
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

function compareRow(name: string, line: string, summed: SummedRow, { day, id }: Positions): number {
  const stored = line.slice(day, day + DAY_LENGTH);
  if (stored !== summed[0]) return stored < summed[0] ? -1 : 1;
  if (name !== summed[1]) return compareNames(name, summed[1]);
  const storedId = line.slice(id, id + ID_LENGTH);
  return storedId === summed[2] ? 0 : storedId < summed[2] ? -1 : 1;
}

/** In the order of the database: by the bytes of UTF-8. */
function compareNames(a: string, b: string): number {
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}
