import { Buffer } from 'node:buffer';
import { open, stat, type FileHandle } from 'node:fs/promises';
import { LogText } from '../../engine/log-text.js';
import type { LogChunk, LogQuery } from '../../engine/runtime.js';
import type { SandboxPlaces } from './places.js';

/** See guest/supervise/log.h. */
const HEADER_BYTES = 16;
const LONGEST_PIECE = 65_535;
const READ_BYTES = 256 * 1024;
const LINE_BREAK = 0x0a;
const STREAMS = { 1: 'stdout', 2: 'stderr' } as const;
const NANOS = 1_000_000_000n;

/**
 * Follows the output of a sandbox. `wait` resolves when more may have been written. It returns false when the run has
 * ended: the pieces that are there are the last ones.
 */
export async function* followOutput(
  places: SandboxPlaces,
  query: LogQuery,
  wait: () => Promise<boolean>,
): AsyncIterable<Iterable<LogChunk>> {
  const pieces = new Pieces(query);
  let file = (await openLog(places.olderOutput)) ?? (await openLog(places.output));
  try {
    for (let isLast = false; ;) {
      const chunk = file && (await readNext(file));
      if (chunk && chunk.length > 0) {
        yield pieces.linesOf(chunk);
        continue;
      }
      const next: OpenLog | undefined = await nextLog(file, places);
      if (next) {
        // A piece may have come between the read and the replacement.
        const rest = file && (await readNext(file));
        if (rest && rest.length > 0) {
          await next.handle.close();
          yield pieces.linesOf(rest);
          continue;
        }
        await file?.handle.close();
        pieces.startFile();
        file = next;
        continue;
      }
      if (isLast) return;
      isLast = !(await wait());
    }
  } finally {
    await file?.handle.close();
  }
}

interface OpenLog {
  handle: FileHandle;
  inode: number;
  at: number;
}

async function openLog(path: string): Promise<OpenLog | undefined> {
  try {
    const handle = await open(path, 'r');
    return { handle, inode: (await handle.stat()).ino, at: 0 };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

async function readNext(log: OpenLog): Promise<Buffer> {
  const { bytesRead, buffer } = await log.handle.read({
    buffer: Buffer.allocUnsafe(READ_BYTES),
    position: log.at,
  });
  log.at += bytesRead;
  return buffer.subarray(0, bytesRead);
}

/** The log that follows this one. Undefined: this is the newest. */
async function nextLog(
  file: OpenLog | undefined,
  { output, olderOutput }: SandboxPlaces,
): Promise<OpenLog | undefined> {
  const inodeOf = async (path: string) => (await stat(path).catch(() => undefined))?.ino;
  const newest = await inodeOf(output);
  if (newest === undefined || newest === file?.inode) return undefined;
  const isOlder = file !== undefined && (await inodeOf(olderOutput)) === file.inode;
  return isOlder ? openLog(output) : ((await openLog(olderOutput)) ?? openLog(output));
}

/** The lines in the pieces of a log. */
class Pieces {
  private readonly texts: { stdout: LogText; stderr: LogText };
  private incomplete: Buffer = Buffer.alloc(0);

  constructor(private readonly query: LogQuery) {
    this.texts = {
      stdout: new LogText('stdout', query.after.stdout),
      stderr: new LogText('stderr', query.after.stderr),
    };
  }

  /** A supervisor that was killed may have left half of a piece at the end of a file. */
  startFile(): void {
    this.incomplete = Buffer.alloc(0);
  }

  *linesOf(chunk: Buffer): Iterable<LogChunk> {
    const data = this.incomplete.length === 0 ? chunk : Buffer.concat([this.incomplete, chunk]);
    let at = 0;
    while (data.length - at >= HEADER_BYTES) {
      const length = data.readUInt32LE(at + 8);
      if (length > LONGEST_PIECE) throw new Error('the output of the sandbox is damaged on the disk');
      const begin = at + HEADER_BYTES;
      if (data.length - begin < length) break;
      const ts = timeOf(data.readBigUInt64LE(at));
      const source = STREAMS[data[at + 12] === 2 ? 2 : 1];
      at = begin + length;
      if (this.query.sources.has(source)) yield* this.linesIn(source, ts, data, begin, at);
    }
    this.incomplete = Buffer.from(data.subarray(at));
  }

  private *linesIn(
    source: 'stdout' | 'stderr',
    ts: string,
    data: Buffer,
    begin: number,
    end: number,
  ): Iterable<LogChunk> {
    for (let from = begin; from < end;) {
      const found = data.indexOf(LINE_BREAK, from) + 1;
      const isWhole = found > 0 && found <= end;
      const to = isWhole ? found : end;
      const line = this.texts[source].read(ts, data, from, to, isWhole);
      if (line) yield line;
      from = to;
    }
  }
}

/** `2026-01-31T12:00:00.123456789Z`, as other engines have it. */
function timeOf(nanos: bigint): string {
  const seconds = new Date(Number(nanos / NANOS) * 1_000).toISOString().slice(0, 19);
  return `${seconds}.${String(nanos % NANOS).padStart(9, '0')}Z`;
}
