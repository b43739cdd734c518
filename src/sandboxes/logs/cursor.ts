import { badParameter } from '../../http/errors.js';
import { LOG_STREAMS, type LogPosition, type LogQuery } from '../../engine/runtime.js';

/** The position in a log: the end of the last piece of each stream. */
export type LogCursor = LogQuery['after'];

/**
 * The form that clients check: a count of files, then a generation and an offset of each, both u64 little-endian. The
 * offset is the time. The generation is 1 and the number of bytes with this time that the reader has.
 */
const FILE_BYTES = 16;
/** Without a piece of `system` its file is left out. */
const FEWEST_FILES = 2;
/** Earlier releases counted no bytes: the reader has every piece with this time. */
const WITHOUT_BYTES = 1;
const WORD = 2 ** 32;

/** Reused, because every line of a log has a cursor. */
const encoded = Buffer.alloc(1 + LOG_STREAMS.length * FILE_BYTES);
const view = new DataView(encoded.buffer, encoded.byteOffset, encoded.length);

export function encodeCursor(cursor: LogCursor): string {
  const files = cursor.system === undefined ? FEWEST_FILES : LOG_STREAMS.length;
  encoded[0] = files;
  for (let index = 0, at = 1; index < files; index += 1, at += FILE_BYTES) {
    const { nanos, bytes } = cursor[LOG_STREAMS[index]!] ?? { nanos: 0n, bytes: 0 };
    const generation = WITHOUT_BYTES + (bytes === Infinity ? 0 : bytes);
    view.setUint32(at, generation % WORD, true);
    view.setUint32(at + 4, Math.floor(generation / WORD), true);
    view.setBigUint64(at + 8, nanos, true);
  }
  return encoded.toString('base64', 0, 1 + files * FILE_BYTES);
}

export function decodeCursor(id: string | undefined): LogCursor {
  if (id === undefined || id === '') return {};
  const bytes = Buffer.from(id, 'base64');
  const files = bytes[0] ?? 0;
  const fits = files >= FEWEST_FILES && files <= LOG_STREAMS.length;
  if (!fits || bytes.length !== 1 + files * FILE_BYTES || bytes.toString('base64') !== id) throw foreign();
  const positions = LOG_STREAMS.slice(0, files).map((stream, index) => {
    const at = 1 + index * FILE_BYTES;
    return [stream, positionOf(bytes.readBigUInt64LE(at), bytes.readBigUInt64LE(at + 8))] as const;
  });
  return Object.fromEntries(positions.filter(([, { nanos }]) => nanos > 0n));
}

function positionOf(generation: bigint, nanos: bigint): LogPosition {
  if (generation < WITHOUT_BYTES || generation > Number.MAX_SAFE_INTEGER || nanos > LATEST) throw foreign();
  const bytes = Number(generation) - WITHOUT_BYTES;
  return { nanos, bytes: bytes === 0 ? Infinity : bytes };
}

/** Times of the engine are signed. */
const LATEST = 2n ** 63n - 1n;

function foreign(): Error {
  return badParameter('last-event-id', 'last-event-id must be the id of an event of this log');
}
