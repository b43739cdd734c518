import { Buffer } from 'node:buffer';
import { PassThrough } from 'node:stream';
import { nanosOf } from '../docker/log-stream.js';
import type { LogChunk, LogQuery } from '../runtime.js';
import type { Cluster } from './client.js';
import { CONTAINER, type Place } from './names.js';

const SPACE = 0x20;
const LINE_BREAK = 0x0a;
/** A longer line is passed on in parts. */
const LONGEST_PART = 64 * 1024;

/**
 * Follows the log of a Pod until its container ends. The cluster has one stream with the lines of both outputs, so every line
 * counts as standard output.
 */
export async function* followLog(
  { library, config }: Cluster,
  { name: pod, namespace }: Place,
  { sources, after }: LogQuery,
  signal: AbortSignal,
): AsyncIterable<Iterable<LogChunk>> {
  if (!sources.has('stdout')) return;
  const stream = new PassThrough();
  // The library tells nobody of a connection that breaks.
  stream.once('pipe', (answer) => answer.once('error', (error) => stream.destroy(error)));
  const since = after.stdout === undefined ? {} : { sinceTime: secondOf(after.stdout) };
  const request = await new library.Log(config).log(namespace, pod, CONTAINER, stream, {
    ...{ follow: true, timestamps: true },
    ...since,
  });
  const stop = () => request.abort();
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) stop();
  try {
    const lines = new LogLines(after.stdout ?? 0n);
    for await (const chunk of stream) yield lines.of(chunk as Buffer);
  } finally {
    signal.removeEventListener('abort', stop);
    stop();
  }
}

/** Lines begin with a time and a space. */
class LogLines {
  private readonly decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  private incomplete: Buffer = Buffer.alloc(0);
  /** The time of a line whose begin was passed on. */
  private ts: string | undefined;

  constructor(private readonly after: bigint) {}

  *of(chunk: Buffer): Iterable<LogChunk> {
    const data = this.incomplete.length === 0 ? chunk : Buffer.concat([this.incomplete, chunk]);
    let at = 0;
    while (at < data.length) {
      const end = data.indexOf(LINE_BREAK, at) + 1;
      if (end === 0 && data.length - at < LONGEST_PART) break;
      const to = end === 0 ? data.length : end;
      const space = data.indexOf(SPACE, at);
      const begin = this.ts === undefined && space >= 0 && space < to ? space + 1 : at;
      const ts = this.ts ?? data.toString('latin1', at, begin - 1);
      const text = this.decoder.decode(data.subarray(begin, to), { stream: true });
      this.ts = end === 0 ? ts : undefined;
      at = to;
      if (nanosOf(ts) > this.after && text !== '') yield { source: 'stdout', ts, text };
    }
    this.incomplete = data.subarray(at);
  }
}

/** The cluster takes times of whole seconds. */
function secondOf(nanos: bigint): string {
  return new Date(Number(nanos / 1_000_000_000n) * 1_000).toISOString();
}
