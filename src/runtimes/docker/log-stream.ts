import { Buffer } from 'node:buffer';
import type { LogChunk, LogQuery } from '../runtime.js';

const HEADER_BYTES = 8;
/** A longer frame is passed on in parts. The Docker engine splits lines at 16 KiB. */
export const FRAME_BYTES = 64 * 1024;
const SPACE = 0x20;
const FIRST_MULTIBYTE = 0x80;

/** Demultiplexes the engine's log stream. A chunk is parsed while its lines are read, which must be before the next chunk. */
export async function* readLogStream(
  chunks: AsyncIterable<Buffer>,
  query: LogQuery,
): AsyncIterable<Iterable<LogChunk>> {
  const frames = new LogFrames(query);
  for await (const chunk of chunks) yield frames.linesOf(chunk);
}

/** Frames have an eight-byte header: the stream, three zeros and a length (u32, big-endian). Then come a time, a space and text. */
class LogFrames {
  private readonly texts = { stdout: new TextPieces(), stderr: new TextPieces() };
  private incomplete: Buffer = Buffer.alloc(0);
  private frame: { source: 'stdout' | 'stderr'; ts: string; isWanted: boolean; left: number } | undefined;

  constructor(private readonly query: LogQuery) {}

  *linesOf(chunk: Buffer): Iterable<LogChunk> {
    const data = this.incomplete.length === 0 ? chunk : Buffer.concat([this.incomplete, chunk]);
    let at = 0;
    while (at < data.length) {
      if (this.frame) {
        const { source, ts, isWanted, left } = this.frame;
        const end = Math.min(at + left, data.length);
        const text = isWanted ? this.texts[source].decode(data, at, end) : '';
        if (text !== '') yield { source, ts, text };
        this.frame = left === end - at ? undefined : { ...this.frame, left: left - (end - at) };
        at = end;
        continue;
      }
      if (data.length - at < HEADER_BYTES) break;
      const begin = at + HEADER_BYTES;
      const end = begin + data.readUInt32BE(at + 4);
      if (end > data.length && data.length - at < FRAME_BYTES) break;
      const source = data[at] === 2 ? 'stderr' : 'stdout';
      const space = data.indexOf(SPACE, begin);
      const hasTime = space >= 0 && space < end;
      at = hasTime ? space + 1 : begin;
      const ts = data.toString('latin1', begin, at - 1);
      this.frame = { source, ts, isWanted: hasTime && this.isWanted(source, ts), left: end - at };
    }
    this.incomplete = data.subarray(at);
  }

  private isWanted(source: 'stdout' | 'stderr', ts: string): boolean {
    const after = this.query.after[source];
    // The engine's `since` is one inclusive value for both streams.
    return this.query.sources.has(source) && (after === undefined || nanosOf(ts) > after);
  }
}

/** A character may be cut between two frames. */
class TextPieces {
  private readonly decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  private isCut = false;

  decode(data: Buffer, begin: number, end: number): string {
    const wasCut = this.isCut;
    this.isCut = data[end - 1]! >= FIRST_MULTIBYTE;
    if (!wasCut && !this.isCut) return data.toString('utf8', begin, end);
    return this.decoder.decode(data.subarray(begin, end), { stream: true });
  }
}

const NANOS = 1_000_000_000n;
/** `2026-01-31T12:00:00.123456789Z`, as the engine writes every time of a log. */
const ENGINE_TIME = { length: 30, second: 19, fraction: 20 };
let latest = { second: '', nanos: 0n };

export function nanosOf(ts: string): bigint {
  const fraction = Number(ts.slice(ENGINE_TIME.fraction, -1));
  if (ts.length !== ENGINE_TIME.length || !ts.endsWith('Z') || !Number.isInteger(fraction))
    return parseNanos(ts);
  const second = ts.slice(0, ENGINE_TIME.second);
  if (second !== latest.second) latest = { second, nanos: parseNanos(`${second}Z`) };
  return latest.nanos + BigInt(fraction);
}

function parseNanos(ts: string): bigint {
  const match = /^(.+?)(?:\.(\d{1,9}))?(Z|[+-]\d{2}:\d{2})$/.exec(ts);
  const millis = match ? Date.parse(`${match[1]}${match[3]}`) : NaN;
  if (!match || Number.isNaN(millis)) return 0n;
  return BigInt(millis) * 1_000_000n + BigInt((match[2] ?? '').padEnd(9, '0'));
}

export function sinceOf({ stdout = 0n, stderr = 0n }: LogQuery['after']): string {
  const first = stdout < stderr ? stdout : stderr;
  return `${first / NANOS}.${String(first % NANOS).padStart(9, '0')}`;
}
