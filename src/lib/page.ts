/** One page of a list and where the next begins. */
export interface Page<T> {
  data: T[];
  has_more: boolean;
  next_cursor: string | null;
}

/**
 * Makes a page of `rows`, which were read with one more than `limit`: the one too many only tells that there is more.
 * `cursorAt` gives the cursor that continues after a row.
 */
export function toPage<Row, T>(
  rows: readonly Row[],
  limit: number,
  present: (row: Row) => T,
  cursorAt: (row: Row) => string,
): Page<T> {
  return makePage(rows.slice(0, limit), rows.length > limit, present, cursorAt);
}

/** Makes a page of `shown`, of which there is at least one when there is more. */
function makePage<Row, T>(
  shown: readonly Row[],
  has_more: boolean,
  present: (row: Row) => T,
  cursorAt: (row: Row) => string,
): Page<T> {
  return { data: shown.map(present), has_more, next_cursor: has_more ? cursorAt(shown.at(-1)!) : null };
}

/** The same as JSON text, of items that are JSON text. */
export function pageText<Row>(
  rows: readonly Row[],
  limit: number,
  textOf: (row: Row) => string,
  cursorAt: (row: Row) => string,
): string {
  const more = rows.length > limit;
  let items = '';
  for (let index = 0; index < Math.min(rows.length, limit); index += 1) {
    items += index === 0 ? textOf(rows[index]!) : `,${textOf(rows[index]!)}`;
  }
  const next = more ? `"${cursorAt(rows[limit - 1]!)}"` : 'null';
  return `{"data":[${items}],"has_more":${more},"next_cursor":${next}}`;
}
