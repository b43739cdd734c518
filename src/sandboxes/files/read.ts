import { Readable } from 'node:stream';
import { ApiError } from '../../http/errors.js';
import { READ_ONLY, type FileStat } from '../../guest/guest.js';
import { cutError } from '../sessions/ended-error.js';
import type { Visit } from '../sessions/entrance.js';
import { untilEnded } from '../sessions/until-ended.js';
import { absolutePath, kindOf } from './entry.js';
import { openFiles, type FileSession } from './session.js';
import { translateErrors } from './translate-errors.js';

const CHUNK_BYTES = 128 * 1024;

/**
 * `size`: undefined where the file system does not tell it, as below `/proc` and `/sys`. The session closes with the
 * content.
 */
export async function read(
  visit: Visit,
  path: string,
): Promise<{ content: Readable; size: number | undefined }> {
  const session = await openFiles(visit);
  try {
    return await untilEnded(
      visit.ended,
      translateErrors(() => open(session, absolutePath(path))),
    );
  } catch (error) {
    session.close();
    throw error;
  }
}

async function open(session: FileSession, path: string) {
  const { files } = session;
  const refuseOthers = (stat: FileStat) => {
    if (kindOf(stat) !== 'file') throw new ApiError('invalid_sandbox_path', `${path} is not a file`);
  };
  // Checked before the file is opened, because opening can act on a device, and after it, because a guest can move a
  // link meanwhile.
  refuseOthers(await files.stat(path, { follow: true }));
  const handle = await files.open(path, READ_ONLY);
  const opened = await files.statOpen(handle);
  refuseOthers(opened);
  const { size: bytes } = opened;
  const told = bytes > 0n && bytes <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(bytes) : Infinity;
  const first = await files.read(handle, 0n, Math.min(CHUNK_BYTES, told));
  const isKnown = told < Infinity && first.length === Math.min(CHUNK_BYTES, told);
  const size = isKnown ? told : undefined;
  const chunks = bytesOf(session, handle, first, size ?? Infinity);
  const content = Readable.from(chunks, { objectMode: false, highWaterMark: CHUNK_BYTES });
  content.once('close', () => session.close());
  cutWith(session.ended, content);
  return { content, size };
}

/**
 * Ends the content also while the client reads nothing. The content then waits for the client, and would see no end.
 */
function cutWith(ended: AbortSignal, content: Readable): void {
  const cut = () => content.destroy(ended.reason === 'client_left' ? undefined : cutError(ended));
  ended.addEventListener('abort', cut, { once: true });
  content.once('close', () => ended.removeEventListener('abort', cut));
  if (ended.aborted) cut();
}

/** A file that became shorter breaks the answer off, so that no client takes it for complete. */
async function* bytesOf(
  session: FileSession,
  handle: number,
  first: Buffer,
  size: number,
): AsyncIterable<Buffer> {
  const { files, record, ended } = session;
  let position = 0;
  for (let data = first; data.length > 0;) {
    position += data.length;
    record.sent(data.length);
    yield data;
    if (position === size) break;
    const length = Math.min(CHUNK_BYTES, size - position);
    data = await untilEnded(ended, files.read(handle, BigInt(position), length));
  }
  if (size < Infinity && position < size) throw new Error('the file became shorter while it was read');
  session.close();
}
