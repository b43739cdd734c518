import type { LogChunk, LogQuery } from '../runtime.js';

const HEADER_BYTES = 8;

/** Demultiplexes the engine's log stream. Frames have an eight-byte header and may split a character of a long line. */
export async function* readLogStream(
  chunks: AsyncIterable<Buffer>,
  { sources, after }: LogQuery,
): AsyncIterable<LogChunk> {
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  for await (const { source, payload } of framesOf(chunks)) {
    const space = payload.indexOf(' ');
    if (space < 0) continue;
    const ts = payload.toString('latin1', 0, space);
    // The engine's `since` is one inclusive value for both streams.
    if (!sources.has(source) || nanosOf(ts) <= (after[source] ?? -1n)) continue;
    const text = decoders[source].decode(payload.subarray(space + 1), { stream: true });
    if (text !== '') yield { source, ts, text };
  }
}

async function* framesOf(
  chunks: AsyncIterable<Buffer>,
): AsyncIterable<{ source: 'stdout' | 'stderr'; payload: Buffer }> {
  let buffered: Buffer[] = [];
  let bytes = 0;
  let needed = HEADER_BYTES;
  for await (const chunk of chunks) {
    buffered.push(chunk);
    bytes += chunk.length;
    if (bytes < needed) continue;
    let remaining = Buffer.concat(buffered, bytes);
    for (;;) {
      needed = HEADER_BYTES + (remaining.length < HEADER_BYTES ? 0 : remaining.readUInt32BE(4));
      if (remaining.length < HEADER_BYTES || remaining.length < needed) break;
      yield {
        source: remaining[0] === 2 ? 'stderr' : 'stdout',
        payload: remaining.subarray(HEADER_BYTES, needed),
      };
      remaining = remaining.subarray(needed);
    }
    buffered = remaining.length === 0 ? [] : [remaining];
    bytes = remaining.length;
  }
}

export function nanosOf(ts: string): bigint {
  const match = /^(.+?)(?:\.(\d{1,9}))?(Z|[+-]\d{2}:\d{2})$/.exec(ts);
  const millis = match ? Date.parse(`${match[1]}${match[3]}`) : NaN;
  if (!match || Number.isNaN(millis)) return 0n;
  return BigInt(millis) * 1_000_000n + BigInt((match[2] ?? '').padEnd(9, '0'));
}

export function sinceOf({ stdout = 0n, stderr = 0n }: LogQuery['after']): string {
  const first = stdout < stderr ? stdout : stderr;
  return `${first / 1_000_000_000n}.${String(first % 1_000_000_000n).padStart(9, '0')}`;
}
