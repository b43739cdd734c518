import { stringifyExact } from '../lib/exact-json.js';
import type { PacedSteps } from '../fairness/paced-steps.js';

const ITEMS_OF_STEP = 100;
const LETTERS_OF_STEP = 32 * 1024;

/**
 * Makes the JSON text of an object with long lists or strings in turns with other work. In one step, 50,000 files or 8
 * MiB of output would hold up all other requests.
 */
export async function longJson(steps: PacedSteps, key: string, fields: object): Promise<Buffer> {
  const pieces: Buffer[] = [];
  const text = textOf(fields);
  const step = () => {
    const { value, done } = text.next();
    if (!done) pieces.push(Buffer.from(value));
    return done;
  };
  while (!(await steps.once(key, step)));
  return Buffer.concat(pieces);
}

function* textOf(fields: object): Generator<string, void> {
  yield '{';
  let comma = '';
  for (const [name, value] of Object.entries(fields) as [string, unknown][]) {
    yield `${comma}${JSON.stringify(name)}:`;
    comma = ',';
    if (Array.isArray(value)) yield* textOfList(value);
    else if (typeof value === 'string') yield* textOfString(value);
    else yield JSON.stringify(value);
  }
  yield '}';
}

function* textOfList(items: readonly unknown[]): Generator<string, void> {
  yield '[';
  for (let start = 0; start < items.length; start += ITEMS_OF_STEP) {
    const text = stringifyExact(items.slice(start, start + ITEMS_OF_STEP)).slice(1, -1);
    yield start > 0 ? `,${text}` : text;
  }
  yield ']';
}

function* textOfString(text: string): Generator<string, void> {
  yield '"';
  for (let start = 0; start < text.length;) {
    let end = start + LETTERS_OF_STEP;
    if (isHighSurrogate(text.charCodeAt(end - 1))) end += 1;
    yield JSON.stringify(text.slice(start, end)).slice(1, -1);
    start = end;
  }
  yield '"';
}

function isHighSurrogate(code: number): boolean {
  return code >= 0xd800 && code <= 0xdbff;
}
