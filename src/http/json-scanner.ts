import { Buffer } from 'node:buffer';
import { randomUUID } from 'node:crypto';
import { ByteListReader, type ByteList } from './byte-list.js';
import { ApiError } from './errors.js';

/** The deepest request there is has nine levels. */
export const MAX_DEPTH = 64;
/** JSON.parse takes 8 ms for an object of 20,000 keys, and 70 ms for one of 100,000. */
export const MAX_VALUES = 10_000;
/** BigInt takes seconds for a number of millions of digits. */
export const MAX_NUMBER = 500;
const LONG_NUMBER = 16;
/** JSON.parse takes 50 ms for a list of a million bytes. */
const SHORT_LIST = 1_000;
const LIST_KEY = Buffer.from('content');
/** Precedes the index of a list of bytes in the text. Senders cannot guess it. */
const MARK = `${randomUUID()}:`;

const [QUOTE, BACKSLASH, COMMA, COLON, OPEN_LIST] = [0x22, 0x5c, 0x2c, 0x3a, 0x5b];
const [OTHER, SPACE, OPEN, CLOSE, NUMBER] = [0, 1, 2, 3, 4];
const KINDS = new Uint8Array(256).fill(OTHER);
for (const byte of Buffer.from(' \t\n\r')) KINDS[byte] = SPACE;
for (const byte of Buffer.from('[{')) KINDS[byte] = OPEN;
for (const byte of Buffer.from(']}')) KINDS[byte] = CLOSE;
for (const byte of Buffer.from('0123456789+-.eE')) KINDS[byte] = NUMBER;

/** Bounds the depth, the values and the numbers of a JSON text while it arrives. Its syntax is left to JSON.parse. */
export class JsonScanner {
  /** Whether there may be integers that a number does not hold exactly. */
  hasLongNumbers = false;
  private readonly kept: Buffer[] = [];
  private readonly lists: ByteList[] = [];
  private depth = 0;
  private values = 0;
  private numberLength = 0;
  private inString = false;
  private isEscaped = false;
  /** The bytes of LIST_KEY that the current string has so far; -1: it is another string. */
  private matched = -1;
  /** Whether the latest tokens are LIST_KEY, or LIST_KEY and a colon. */
  private behind: 'nothing' | 'key' | 'colon' = 'nothing';
  private reader: ByteListReader | undefined;
  private before = 0;

  /** `byteLists`: long lists of bytes are taken out of the text. */
  constructor(private readonly byteLists: boolean) {}

  /** Throws `invalid_request` at the first byte beyond a limit. */
  push(chunk: Buffer): void {
    let from = 0;
    for (let at = 0; at < chunk.length;) {
      if (this.inString) at = this.skipString(chunk, at);
      else if (this.reader) {
        at = this.reader.read(chunk, at);
        if (this.leaveList(this.reader)) from = at;
      } else {
        const byte = chunk[at]!;
        if (byte === OPEN_LIST && this.behind === 'colon' && this.byteLists) {
          this.kept.push(chunk.subarray(from, at));
          this.before = this.kept.length;
          this.reader = new ByteListReader();
          from = at;
        }
        this.step(byte);
        at += 1;
      }
    }
    this.kept.push(chunk.subarray(from));
  }

  get text(): string {
    return (this.kept.length === 1 ? this.kept[0]! : Buffer.concat(this.kept)).toString();
  }

  /** Puts the lists of bytes into the parsed text. */
  withLists(value: unknown): unknown {
    if (this.lists.length === 0) return value;
    if (typeof value === 'string' && value.startsWith(MARK))
      return this.lists[Number(value.slice(MARK.length))];
    if (typeof value !== 'object' || value === null) return value;
    if (Array.isArray(value)) return value.map((item) => this.withLists(item));
    return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, this.withLists(item)]));
  }

  private skipString(chunk: Buffer, from: number): number {
    for (let at = from; at < chunk.length; at += 1) {
      const byte = chunk[at]!;
      if (this.isEscaped) this.isEscaped = false;
      else if (byte === BACKSLASH) this.isEscaped = true;
      else if (byte === QUOTE) {
        this.inString = false;
        this.behind = this.matched === LIST_KEY.length ? 'key' : 'nothing';
        return at + 1;
      }
      if (this.matched >= 0) this.matched = byte === LIST_KEY[this.matched] ? this.matched + 1 : -1;
    }
    return chunk.length;
  }

  private step(byte: number): void {
    const kind = KINDS[byte]!;
    if (kind === NUMBER) {
      this.countDigits(1);
      return;
    }
    this.numberLength = 0;
    if (kind === SPACE) return;
    const wasKey = this.behind === 'key';
    this.behind = 'nothing';
    if (kind === OPEN) {
      this.depth += 1;
      if (this.depth > MAX_DEPTH) refuse(`the body is nested more than ${MAX_DEPTH} levels deep`);
      this.countValues(1);
    } else if (kind === CLOSE) this.depth -= 1;
    else if (byte === COMMA) this.countValues(1);
    else if (byte === COLON && wasKey) this.behind = 'colon';
    else if (byte === QUOTE) {
      this.inString = true;
      this.matched = 0;
    }
  }

  /** Returns whether the list was taken out of the text. */
  private leaveList({ state, count, digits, list }: ByteListReader): boolean {
    if (state === 'open') return false;
    this.reader = undefined;
    if (state === 'complete') this.depth -= 1;
    if (state === 'complete' && count > SHORT_LIST) {
      this.kept.length = this.before;
      this.kept.push(Buffer.from(`"${MARK}${this.lists.length}"`));
      this.lists.push(list);
      return true;
    }
    this.countValues(count);
    this.countDigits(digits);
    return false;
  }

  private countValues(more: number): void {
    this.values += more;
    if (this.values > MAX_VALUES) refuse(`the body has more than ${MAX_VALUES} values`);
  }

  private countDigits(more: number): void {
    this.numberLength += more;
    if (this.numberLength >= LONG_NUMBER) this.hasLongNumbers = true;
    if (this.numberLength > MAX_NUMBER) refuse(`the body has a number of more than ${MAX_NUMBER} characters`);
  }
}

function refuse(message: string): never {
  throw new ApiError('invalid_request', message);
}
