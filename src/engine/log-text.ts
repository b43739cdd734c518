import { Buffer } from 'node:buffer';
import { LIMIT } from '../guest/protocol.js';
import { nanosOf } from './log-times.js';
import type { LogChunk, LogPosition } from './runtime.js';

/** Process 1 ends a part of a long line with CUT and a line break; see `guest/init/output.h`. */
const CUT = LIMIT.cut;
const LINE_BREAK = 0x0a;
const NOTHING = Buffer.alloc(0);

const FIRST_MULTIBYTE = 0x80;
const FIRST_OF_TWO = 0xc0;
const FIRST_OF_THREE = 0xe0;
const FIRST_OF_FOUR = 0xf0;
const FIRST_INVALID = 0xf8;

/**
 * The text of one stream of a log, from a position. Several lines, and all parts that an engine made of a long line,
 * can have one time: a position counts the bytes with its time that the reader has.
 */
export class LogText {
  private ts = '';
  private nanos = 0n;
  /** The number of bytes with the time `ts`. It includes those that are held. */
  private bytes = 0;
  /** The begin of a character, or a CUT that may be in front of a line break. */
  private held: Buffer = NOTHING;

  constructor(
    private readonly source: 'stdout' | 'stderr',
    private after: LogPosition | undefined,
  ) {}

  /** `ends`: the engine's record of the line ends here. Undefined: no new text. */
  read(ts: string, data: Buffer, begin: number, end: number, ends: boolean): LogChunk | undefined {
    if (ts !== this.ts) {
      this.ts = ts;
      this.nanos = nanosOf(ts);
      this.bytes = 0;
    }
    const known = Math.min(this.knownBytes(), end - begin);
    this.bytes += end - begin;
    const text = this.decode(data, begin + known, end, ends);
    if (text === '') return undefined;
    const position = { nanos: this.nanos, bytes: this.bytes - this.held.length };
    return { source: this.source, ts, text, position };
  }

  /** The number of the next bytes that the reader has. */
  private knownBytes(): number {
    const { after } = this;
    if (after === undefined) return 0;
    if (this.nanos < after.nanos) return Infinity;
    const left = this.nanos === after.nanos ? after.bytes - this.bytes : 0;
    // A clock that is set back must not hide the lines after it.
    if (left <= 0) this.after = undefined;
    return Math.max(left, 0);
  }

  private decode(data: Buffer, begin: number, end: number, ends: boolean): string {
    if (begin >= end) return '';
    let bytes = data;
    let [from, to] = [begin, end];
    if (this.held.length > 0) {
      bytes = Buffer.concat([this.held, data.subarray(begin, end)]);
      [from, to] = [0, bytes.length];
    }
    const last = bytes[to - 1]!;
    if (last === LINE_BREAK && to - from >= 2 && bytes[to - 2] === CUT) {
      this.held = NOTHING;
      return bytes.toString('utf8', from, to - 2);
    }
    const isCut = last === CUT && !ends;
    const rest = isCut ? 1 : last < FIRST_MULTIBYTE ? 0 : beginOfCharacter(bytes, from, to);
    // A copy: the chunk of the engine is not kept for it.
    this.held = rest === 0 ? NOTHING : Buffer.from(bytes.subarray(to - rest, to));
    return bytes.toString('utf8', from, to - rest);
  }
}

/** The number of bytes at the end that more bytes may complete to a character. */
function beginOfCharacter(bytes: Buffer, from: number, to: number): number {
  for (let size = 1; size <= 3 && to - size >= from; size += 1) {
    const byte = bytes[to - size]!;
    if (byte < FIRST_MULTIBYTE || byte >= FIRST_INVALID) return 0;
    if (byte < FIRST_OF_TWO) continue;
    const whole = byte >= FIRST_OF_FOUR ? 4 : byte >= FIRST_OF_THREE ? 3 : 2;
    return size < whole ? size : 0;
  }
  return 0;
}
