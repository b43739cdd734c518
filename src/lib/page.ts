export interface Page<T> {
  data: T[];
  has_more: boolean;
  next_cursor: string | null;
}

/** `rows`: read with a limit of one more than `limit`, which shows whether another page follows. */
export function toPage<Row, T>(
  rows: readonly Row[],
  limit: number,
  present: (row: Row) => T,
  cursorAt: (row: Row) => string,
): Page<T> {
  return makePage(rows.slice(0, limit), rows.length > limit, present, cursorAt);
}

function makePage<Row, T>(
  shown: readonly Row[],
  has_more: boolean,
  present: (row: Row) => T,
  cursorAt: (row: Row) => string,
): Page<T> {
  return { data: shown.map(present), has_more, next_cursor: has_more ? cursorAt(shown.at(-1)!) : null };
}

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
