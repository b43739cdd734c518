import type { Turns } from '../lib/turns.js';

const ITEMS_OF_STEP = 100;
const LETTERS_OF_STEP = 32 * 1024;

/**
 * Makes the JSON text of an object with long lists or strings in turns with other work: in one step, 50,000 files or 8 MiB of output
 * would hold up all other requests.
 */
export async function longJson(turns: Turns, key: string, fields: object): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for (const piece of textOf(fields)) await turns.once(key, () => pieces.push(Buffer.from(piece())));
  return Buffer.concat(pieces);
}

function* textOf(fields: object): Iterable<() => string> {
  let before = '{';
  for (const [name, value] of Object.entries(fields) as [string, unknown][]) {
    const start = `${before}${JSON.stringify(name)}:`;
    before = ',';
    if (Array.isArray(value)) yield* textOfList(start, value);
    else if (typeof value === 'string') yield* textOfString(start, value);
    else yield () => `${start}${JSON.stringify(value)}`;
  }
  yield () => (before === '{' ? '{}' : '}');
}

function* textOfList(before: string, items: readonly unknown[]): Iterable<() => string> {
  yield () => `${before}[`;
  for (let start = 0; start < items.length; start += ITEMS_OF_STEP) {
    const some = items.slice(start, start + ITEMS_OF_STEP);
    yield () => `${start > 0 ? ',' : ''}${JSON.stringify(some).slice(1, -1)}`;
  }
  yield () => ']';
}

function* textOfString(before: string, text: string): Iterable<() => string> {
  yield () => `${before}"`;
  for (let start = 0; start < text.length;) {
    let end = start + LETTERS_OF_STEP;
    if (isHighSurrogate(text.charCodeAt(end - 1))) end += 1;
    const some = text.slice(start, end);
    yield () => JSON.stringify(some).slice(1, -1);
    start = end;
  }
  yield () => '"';
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}
