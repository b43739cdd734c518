/** The `limit` of each list. */
export const PAGE_LIMIT = { default: 20, max: 100 };

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

/**
 * A page ends early when its text would have more than `maxLength` characters; it has at least one item. `restCursor`:
 * the list goes on there after the last of `rows`.
 */
export function pageText<Row>(
  rows: readonly Row[],
  limit: number,
  textOf: (row: Row) => string,
  cursorAt: (row: Row) => string,
  { maxLength = Infinity, restCursor }: { maxLength?: number; restCursor?: string | undefined } = {},
): string {
  let items = '';
  let shown = 0;
  for (; shown < Math.min(rows.length, limit); shown += 1) {
    const text = textOf(rows[shown]!);
    if (shown > 0 && items.length + text.length > maxLength) break;
    items += shown === 0 ? text : `,${text}`;
  }
  const cursor = rows.length > shown ? cursorAt(rows[shown - 1]!) : restCursor;
  const next = cursor === undefined ? 'null' : `"${cursor}"`;
  return `{"data":[${items}],"has_more":${cursor !== undefined},"next_cursor":${next}}`;
}
