import { randomUUID } from 'node:crypto';

/** An integer of JSON: a bigint exactly where a number would be rounded. */
export type Integer = number | bigint;

/** Stands before the digits of an integer that passes through JSON.parse or JSON.stringify as a string. Nobody else knows it. */
const MARK = `${randomUUID()}:`;
const MARKED = new RegExp(`"${MARK}(-?\\d+)"`, 'g');
/** A number that may be rounded has at least 16 digits. Before a colon it would be a key, which must not become valid. */
const LONG_NUMBER = /-?\d[\d.eE+-]{15,}(?!\s*:)/g;
const INTEGER = /^-?(?:0|[1-9]\d*)$/;

/**
 * JSON.parse, with integers beyond 2^53 - 1 as bigint. `parse`: in place of JSON.parse; it bounds the depth of what it returns when
 * the text is not trusted.
 *
 * The engine's parser does the work, because parsers in JavaScript block for seconds on the largest body (lossless-json: 9 s for a string
 * of 16 MB). Its reviver is given the digits from Node 21 on.
 */
export function parseExact(text: string, parse: (text: string) => unknown = JSON.parse): unknown {
  const marked = /\d{16}/.test(text) ? markIntegers(text) : text;
  return marked === text ? parse(text) : withIntegers(parse(marked));
}

/**
 * JSON.parse, with integers beyond 2^53 - 1 as bigint below every `key`, and rounded everywhere else: serializers of free-form
 * objects take no bigint.
 */
export function parseExactBelow(key: string, text: string): unknown {
  const value = parseExact(text);
  return hasBigint(value) ? roundedOutside(key, value) : value;
}

function roundedOutside(key: string, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => roundedOutside(key, item));
  if (typeof value !== 'object' || value === null) return rounded(value);
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [name, name === key ? item : roundedOutside(key, item)]),
  );
}

/** JSON.stringify, with bigints as JSON numbers. */
export function stringifyExact(value: unknown): string {
  if (!hasBigint(value)) return JSON.stringify(value);
  const mark = (_key: string, item: unknown) => (typeof item === 'bigint' ? `${MARK}${item}` : item);
  return JSON.stringify(value, mark).replace(MARKED, '$1');
}

/** The same value with the nearest number in place of each bigint. */
export function rounded(value: unknown): unknown {
  return replaceScalars(value, (item) => (typeof item === 'bigint' ? Number(item) : item));
}

function markIntegers(text: string): string {
  const parts: string[] = [];
  for (let at = 0; at < text.length;) {
    const quote = text.indexOf('"', at);
    const end = quote === -1 ? text.length : quote;
    const close = quote === -1 ? end : endOfString(text, quote);
    parts.push(text.slice(at, end).replace(LONG_NUMBER, marked), text.slice(end, close));
    at = close;
  }
  return parts.join('');
}

function marked(number: string): string {
  return INTEGER.test(number) && !Number.isSafeInteger(Number(number)) ? `"${MARK}${number}"` : number;
}

/** The place behind the quote that ends the string, or the end of a text that is cut short. */
function endOfString(text: string, start: number): number {
  for (let quote = text.indexOf('"', start + 1); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    let backslashes = 0;
    while (text[quote - 1 - backslashes] === '\\') backslashes += 1;
    if (backslashes % 2 === 0) return quote + 1;
  }
  return text.length;
}

function withIntegers(value: unknown): unknown {
  return replaceScalars(value, (item) =>
    typeof item === 'string' && item.startsWith(MARK) ? BigInt(item.slice(MARK.length)) : item,
  );
}

function replaceScalars(value: unknown, replace: (scalar: unknown) => unknown): unknown {
  if (typeof value !== 'object' || value === null) return replace(value);
  if (Array.isArray(value)) return value.map((item) => replaceScalars(item, replace));
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, replaceScalars(item, replace)]));
}

function hasBigint(value: unknown): boolean {
  if (typeof value === 'bigint') return true;
  return typeof value === 'object' && value !== null && Object.values(value).some(hasBigint);
}
