import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';
import { chunksOf } from '../../http/upload.js';
import { cutError } from '../sessions/ended-error.js';
import { replaceFile } from './replace-file.js';
import type { FileSession } from './session.js';

const CREATE_NEW = {
  read: false,
  write: true,
  append: false,
  create: true,
  truncate: false,
  createNew: true,
  mode: 0o600,
};

/** `onComplete` gets the SHA-256 of the body before the file is replaced. */
export async function write(
  session: FileSession,
  path: string,
  body: Readable | undefined,
  onComplete: (digest: string) => Promise<void>,
): Promise<{ message: string }> {
  const { files, record, ended } = session;
  try {
    await replaceFile(session, path, async (temporary) => {
      const handle = await files.open(temporary, CREATE_NEW);
      const hash = createHash('sha256');
      let offset = 0n;
      for await (const chunk of body ? chunksOf(body, (data) => hash.update(data)) : []) {
        if (ended.aborted) throw cutError(ended);
        await files.write(handle, offset, chunk);
        offset += BigInt(chunk.length);
        record.received(chunk.length);
      }
      await files.close(handle);
      await onComplete(hash.digest('hex'));
    });
  } finally {
    // Drains a refused body; otherwise the connection would stall.
    body?.resume();
  }
  return { message: 'the file is written' };
}
