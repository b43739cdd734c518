import { Buffer } from 'node:buffer';
import { LogText } from '../../engine/log-text.js';
import { secondsOf } from '../../engine/log-times.js';
import type { LogChunk, LogQuery } from '../../engine/runtime.js';

const HEADER_BYTES = 8;
/** A longer frame is passed on in parts. The Docker engine splits lines at 16 KiB. */
export const FRAME_BYTES = 64 * 1024;
const SPACE = 0x20;

/**
 * Demultiplexes the engine's log stream. A chunk is parsed while its lines are read, which must be before the next
 * chunk.
 */
export async function* readLogStream(
  chunks: AsyncIterable<Buffer>,
  query: LogQuery,
): AsyncIterable<Iterable<LogChunk>> {
  const frames = new LogFrames(query);
  for await (const chunk of chunks) yield frames.linesOf(chunk);
}

/**
 * Frames have an eight-byte header: the stream, three zeros and a length (u32, big-endian). Then come a time, a space
 * and text.
 */
class LogFrames {
  private readonly texts: { stdout: LogText; stderr: LogText };
  private incomplete: Buffer = Buffer.alloc(0);
  private frame: { source: 'stdout' | 'stderr'; ts: string; isWanted: boolean; left: number } | undefined;

  constructor(private readonly query: LogQuery) {
    // The engine's `since` is one inclusive value for both streams.
    this.texts = {
      stdout: new LogText('stdout', query.after.stdout),
      stderr: new LogText('stderr', query.after.stderr),
    };
  }

  *linesOf(chunk: Buffer): Iterable<LogChunk> {
    const data = this.incomplete.length === 0 ? chunk : Buffer.concat([this.incomplete, chunk]);
    let at = 0;
    while (at < data.length) {
      if (this.frame) {
        const { source, ts, isWanted, left } = this.frame;
        const end = Math.min(at + left, data.length);
        const ends = left === end - at;
        const line = isWanted ? this.texts[source].read(ts, data, at, end, ends) : undefined;
        if (line) yield line;
        this.frame = ends ? undefined : { ...this.frame, left: left - (end - at) };
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
      this.frame = { source, ts, isWanted: hasTime && this.query.sources.has(source), left: end - at };
    }
    this.incomplete = data.subarray(at);
  }
}

/** The first moment of which the reader may lack something, as the engine reads it. */
export function sinceOf({ stdout, stderr }: LogQuery['after']): string {
  const [a, b] = [stdout?.nanos ?? 0n, stderr?.nanos ?? 0n];
  return secondsOf(a < b ? a : b);
}
