import type { LogChunk, LogQuery } from '../runtime.js';

const HEADER_BYTES = 8;

/**
 * Reads what the engine sends of a container's log: pieces of standard output and standard error, each behind a header of
 * eight bytes (the stream, three zeros, the length), each beginning with its time.
 *
 * Long lines come in several pieces, which may be cut inside a character: the rest of it is kept for the next piece of
 * the same stream.
 */
export async function* readLogStream(
  chunks: AsyncIterable<Buffer>,
  { sources, after }: LogQuery,
): AsyncIterable<LogChunk> {
  const decoders = { stdout: new TextDecoder(), stderr: new TextDecoder() };
  for await (const { source, payload } of piecesOf(chunks)) {
    const space = payload.indexOf(' ');
    if (space < 0) continue;
    const ts = payload.toString('latin1', 0, space);
    // The engine's `since` has one value for both streams, and includes it.
    if (!sources.has(source) || nanosOf(ts) <= (after[source] ?? -1n)) continue;
    const text = decoders[source].decode(payload.subarray(space + 1), { stream: true });
    if (text !== '') yield { source, ts, text };
  }
}

async function* piecesOf(
  chunks: AsyncIterable<Buffer>,
): AsyncIterable<{ source: 'stdout' | 'stderr'; payload: Buffer }> {
  let waiting: Buffer[] = [];
  let bytes = 0;
  let wanted = HEADER_BYTES;
  for await (const chunk of chunks) {
    waiting.push(chunk);
    bytes += chunk.length;
    if (bytes < wanted) continue;
    let rest = Buffer.concat(waiting, bytes);
    for (;;) {
      wanted = HEADER_BYTES + (rest.length < HEADER_BYTES ? 0 : rest.readUInt32BE(4));
      if (rest.length < HEADER_BYTES || rest.length < wanted) break;
      yield { source: rest[0] === 2 ? 'stderr' : 'stdout', payload: rest.subarray(HEADER_BYTES, wanted) };
      rest = rest.subarray(wanted);
    }
    waiting = rest.length === 0 ? [] : [rest];
    bytes = rest.length;
  }
}

/** The time of an RFC 3339 text in nanoseconds since 1970; 0 for what is none. */
export function nanosOf(ts: string): bigint {
  const match = /^(.+?)(?:\.(\d{1,9}))?(Z|[+-]\d{2}:\d{2})$/.exec(ts);
  const millis = match ? Date.parse(`${match[1]}${match[3]}`) : NaN;
  if (!match || Number.isNaN(millis)) return 0n;
  return BigInt(millis) * 1_000_000n + BigInt((match[2] ?? '').padEnd(9, '0'));
}

/** As the engine wants it: seconds, a point, nanoseconds. */
export function sinceOf({ stdout = 0n, stderr = 0n }: LogQuery['after']): string {
  const first = stdout < stderr ? stdout : stderr;
  return `${first / 1_000_000_000n}.${String(first % 1_000_000_000n).padStart(9, '0')}`;
}
