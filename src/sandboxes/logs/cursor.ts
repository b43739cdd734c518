import { badParameter } from '../../http/errors.js';
import type { LogQuery } from '../../runtimes/runtime.js';

/** The position in a log: the time of the last piece of each stream, in nanoseconds since 1970. */
export type LogCursor = LogQuery['after'];

/** The form that clients check: a count of files, then a generation and an offset of each, both u64 little-endian. */
const FILES = ['stdout', 'stderr'] as const;
const FILE_BYTES = 16;
const GENERATION = 1n;

/** Reused, because every line of a log has a cursor. */
const encoded = Buffer.alloc(1 + FILES.length * FILE_BYTES, FILES.length);
const view = new DataView(encoded.buffer, encoded.byteOffset, encoded.length);

export function encodeCursor(cursor: LogCursor): string {
  for (let index = 0, at = 1; index < FILES.length; index += 1, at += FILE_BYTES) {
    view.setBigUint64(at, GENERATION, true);
    view.setBigUint64(at + 8, cursor[FILES[index]!] ?? 0n, true);
  }
  return encoded.toString('base64');
}

export function decodeCursor(id: string | undefined): LogCursor {
  if (id === undefined || id === '') return {};
  const bytes = Buffer.from(id, 'base64');
  const whole = bytes.length === 1 + FILES.length * FILE_BYTES && bytes.toString('base64') === id;
  const known = FILES.every(
    (_, index) => whole && bytes.readBigUInt64LE(1 + index * FILE_BYTES) === GENERATION,
  );
  if (!known || bytes[0] !== FILES.length) {
    throw badParameter('last-event-id', 'last-event-id must be the id of an event of this log');
  }
  const [stdout, stderr] = FILES.map((_, index) => bytes.readBigUInt64LE(1 + index * FILE_BYTES + 8));
  return { ...(stdout === 0n ? {} : { stdout: stdout! }), ...(stderr === 0n ? {} : { stderr: stderr! }) };
}
