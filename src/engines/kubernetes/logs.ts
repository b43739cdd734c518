import { Buffer } from 'node:buffer';
import { PassThrough } from 'node:stream';
import { LogText } from '../../engine/log-text.js';
import type { LogChunk, LogPosition, LogQuery } from '../../engine/runtime.js';
import type { Cluster } from './client.js';
import { CONTAINER, type Place } from './names.js';

const SPACE = 0x20;
const LINE_BREAK = 0x0a;
/** A longer line is passed on in parts. */
const LONGEST_PART = 64 * 1024;

/**
 * Follows the log of a Pod until its container ends. The cluster has one stream with the lines of both outputs, so
 * every line counts as standard output.
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
  const since = after.stdout === undefined ? {} : { sinceTime: secondOf(after.stdout.nanos) };
  const request = await new library.Log(config).log(namespace, pod, CONTAINER, stream, {
    follow: true,
    timestamps: true,
    ...since,
  });
  const stop = () => request.abort();
  signal.addEventListener('abort', stop, { once: true });
  if (signal.aborted) stop();
  try {
    yield* readPodLog(stream as AsyncIterable<Buffer>, after.stdout);
  } finally {
    signal.removeEventListener('abort', stop);
    stop();
  }
}

const TIME = /^\d{4}-\d\d-\d\dT/;
const LONGEST_ERROR = 300;

/** A chunk is parsed while its lines are read, which must be before the next chunk. */
export async function* readPodLog(
  chunks: AsyncIterable<Buffer>,
  after: LogPosition | undefined,
): AsyncIterable<Iterable<LogChunk>> {
  const lines = new LogLines(after);
  for await (const chunk of chunks) yield lines.of(chunk);
  yield lines.rest();
}

/** Lines begin with a time and a space. */
class LogLines {
  private readonly text: LogText;
  private incomplete: Buffer = Buffer.alloc(0);
  /** The time of a line whose begin was passed on. */
  private ts: string | undefined;

  constructor(after: LogPosition | undefined) {
    this.text = new LogText('stdout', after);
  }

  *of(chunk: Buffer): Iterable<LogChunk> {
    const data = this.incomplete.length === 0 ? chunk : Buffer.concat([this.incomplete, chunk]);
    let at = 0;
    while (at < data.length) {
      const end = data.indexOf(LINE_BREAK, at) + 1;
      if (end === 0 && data.length - at < LONGEST_PART) break;
      const to = end === 0 ? data.length : end;
      const space = data.indexOf(SPACE, at);
      const begin = this.ts === undefined && space >= 0 && space < to ? space + 1 : at;
      const ts = this.ts ?? timeOf(data, at, begin - 1);
      const line = this.text.read(ts, data, begin, to, end > 0);
      this.ts = end === 0 ? ts : undefined;
      at = to;
      if (line) yield line;
    }
    this.incomplete = data.subarray(at);
  }

  /** The last line of a log may have no line break. */
  *rest(): Iterable<LogChunk> {
    const data = this.incomplete;
    const space = this.ts === undefined ? data.indexOf(SPACE) : -1;
    if (this.ts === undefined && space < 0) return;
    const ts = this.ts ?? timeOf(data, 0, space);
    const line = this.text.read(ts, data, space + 1, data.length, true);
    if (line) yield line;
  }
}

/**
 * A node writes its own errors into the answer, such as "failed to try resolving symlinks", and the log ends with them.
 */
function timeOf(data: Buffer, at: number, end: number): string {
  const ts = data.toString('latin1', at, end);
  if (TIME.test(ts)) return ts;
  throw new Error(`the node cannot read the log: ${data.toString('utf8', at, at + LONGEST_ERROR)}`);
}

/** The cluster takes times of whole seconds. */
function secondOf(nanos: bigint): string {
  return new Date(Number(nanos / 1_000_000_000n) * 1_000).toISOString();
}
