import { randomUUID } from 'node:crypto';

/** An integer of JSON: a bigint if a number would be rounded. */
export type Integer = number | bigint;

/** The product, exact. */
export function exactProduct(factor: number, other: number): Integer {
  const product = factor * other;
  return Number.isSafeInteger(product) ? product : BigInt(factor) * BigInt(other);
}

/** A number where it is exact. */
export function exactInteger(value: bigint): Integer {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}

/**
 * Precedes the digits of a number that passes through JSON.parse or JSON.stringify as a string. Senders cannot guess
 * it.
 */
const MARK = `${randomUUID()}:`;
const MARKED_INTEGER = new RegExp(`"${MARK}(-?\\d+)"`, 'g');
/**
 * A number that may be rounded has at least 16 digits. Before a colon it would be a key, which must not become valid.
 */
const LONG_NUMBER = /-?\d[\d.eE+-]{15,}(?!\s*:)/g;
const INTEGER = /^-?(?:0|[1-9]\d*)$/;
/** A double holds every other number: it has at most 15 digits and no exponent, and is not -0. */
const MAYBE_INEXACT = /(?=-?[\d.]*[eE]|-0|[-\d.]{16})-?\d[\d.eE+-]*/g;

/**
 * JSON.parse, with integers beyond 2^53 - 1 as bigint. `parse` replaces JSON.parse: for untrusted text it bounds the
 * depth.
 *
 * JSON.parse does the work: a parser in JavaScript blocks the event loop (lossless-json: 9 s for a string of 16 MB).
 * Node 20 does not pass the digits to a reviver.
 */
export function parseExact(text: string, parse: (text: string) => unknown = JSON.parse): unknown {
  const marked = /\d{16}/.test(text) ? markIntegers(text) : text;
  return marked === text ? parse(text) : fromMarks(parse(marked), BigInt);
}

/**
 * `parseExact`, but rounds integers outside of every one of the keys: serializers of free-form objects accept no
 * bigint.
 */
export function parseExactBelow(keys: readonly string[], text: string): unknown {
  const value = parseExact(text);
  return hasBigint(value) ? roundedOutside(keys, value) : value;
}

function roundedOutside(keys: readonly string[], value: unknown): unknown {
  if (Array.isArray(value)) return value.map((item) => roundedOutside(keys, item));
  if (typeof value !== 'object' || value === null) return rounded(value);
  return Object.fromEntries(
    Object.entries(value).map(([name, item]) => [
      name,
      keys.includes(name) ? item : roundedOutside(keys, item),
    ]),
  );
}

export function stringifyExact(value: unknown): string {
  if (!hasBigint(value)) return JSON.stringify(value);
  const mark = (_key: string, item: unknown) => (typeof item === 'bigint' ? `${MARK}${item}` : item);
  return JSON.stringify(value, mark).replace(MARKED_INTEGER, '$1');
}

/** The same value with each bigint rounded to the nearest number. */
export function rounded(value: unknown): unknown {
  return replaceScalars(value, (item) => (typeof item === 'bigint' ? Number(item) : item));
}

export class InexactNumber {
  constructor(readonly text: string) {}
}

/**
 * JSON.parse, with an InexactNumber for each number that no double holds exactly; undefined when there is none. The
 * text must be JSON.
 */
export function parseInexact(text: string): unknown {
  const markInexact = (number: string) => (isExactDouble(number) ? number : `"${MARK}${number}"`);
  const markedText = mapOutsideStrings(text, (part) => part.replace(MAYBE_INEXACT, markInexact));
  if (markedText === text) return undefined;
  return fromMarks(JSON.parse(markedText), (number) => new InexactNumber(number));
}

/** The first key that an object in the text has twice. The text must be JSON. */
export function findRepeatedKey(text: string): string | undefined {
  const open: Set<string>[] = [];
  let found: string | undefined;
  let last = '';
  mapOutsideStrings(
    text,
    (part) => {
      for (const [token] of part.matchAll(/[{}:]/g)) {
        if (token === '{') open.push(new Set());
        else if (token === '}') open.pop();
        else {
          const key = last.includes('\\') ? (JSON.parse(last) as string) : last.slice(1, -1);
          if (open.at(-1)!.has(key)) found ??= key;
          open.at(-1)!.add(key);
        }
      }
      return '';
    },
    (string) => (last = string),
  );
  return found;
}

/** Whether the nearest double is written with the same decimal digits. */
function isExactDouble(text: string): boolean {
  const number = Number(text);
  if (number === 0) return /^0[.0]*(?:$|[eE])/.test(text);
  return Number.isFinite(number) && decimalOf(text) === decimalOf(String(number));
}

/** One text for each decimal number except 0: sign, digits without outer zeros, power of ten. */
function decimalOf(text: string): string {
  const [, sign, whole = '', fraction = '', exponent = '0'] =
    /^(-?)(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?$/.exec(text)!;
  const digits = `${whole}${fraction}`.replace(/^0+/, '');
  let end = digits.length;
  while (digits[end - 1] === '0') end -= 1;
  return `${sign}${digits.slice(0, end)}e${Number(exponent) - fraction.length + digits.length - end}`;
}

function markIntegers(text: string): string {
  return mapOutsideStrings(text, (part) => part.replace(LONG_NUMBER, markedInteger));
}

function markedInteger(number: string): string {
  return INTEGER.test(number) && !Number.isSafeInteger(Number(number)) ? `"${MARK}${number}"` : number;
}

/** Replaces the parts of a JSON text between its strings. `onString` gets each string with its quotes. */
function mapOutsideStrings(
  text: string,
  replace: (part: string) => string,
  onString: (string: string) => void = () => undefined,
): string {
  const parts: string[] = [];
  for (let start = 0; start < text.length;) {
    const quote = text.indexOf('"', start);
    const end = quote === -1 ? text.length : quote;
    const close = quote === -1 ? end : endOfString(text, quote);
    const string = text.slice(end, close);
    parts.push(replace(text.slice(start, end)), string);
    if (string !== '') onString(string);
    start = close;
  }
  return parts.join('');
}

/** The index after the closing quote of a string, or the end of a truncated text. */
function endOfString(text: string, start: number): number {
  for (let quote = text.indexOf('"', start + 1); quote !== -1; quote = text.indexOf('"', quote + 1)) {
    let backslashes = 0;
    while (text[quote - 1 - backslashes] === '\\') backslashes += 1;
    if (backslashes % 2 === 0) return quote + 1;
  }
  return text.length;
}

function fromMarks(value: unknown, toNumber: (digits: string) => unknown): unknown {
  return replaceScalars(value, (item) =>
    typeof item === 'string' && item.startsWith(MARK) ? toNumber(item.slice(MARK.length)) : item,
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
