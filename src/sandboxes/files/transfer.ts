import { posix } from 'node:path';
import { ApiError } from '../../http/errors.js';
import { absolutePath, kindOf } from './entry.js';
import { replaceFile } from './replace-file.js';
import type { TransferRequest } from './schema.js';
import type { FileSession } from './session.js';

export async function copy(
  session: FileSession,
  { from, to }: TransferRequest,
): Promise<{ message: string }> {
  const { files } = session;
  const source = absolutePath(from);
  const found = await files.stat(source, { follow: true });
  if (kindOf(found) !== 'file') throw new ApiError('invalid_sandbox_path', `${source} is not a file`);
  await replaceFile(session, to, (temporary) => files.copy(source, temporary), found);
  return { message: 'the file is copied' };
}

/** As rename(2). Makes missing directories. */
export async function rename(
  { files, record }: FileSession,
  { from, to }: TransferRequest,
): Promise<{ message: string }> {
  const [source, target] = [absolutePath(from), absolutePath(to)];
  if (source === '/' || target === '/') {
    const message = 'the top of the sandbox can neither be renamed nor be replaced';
    throw new ApiError('invalid_sandbox_path', message);
  }
  // A missing source must not leave new directories.
  await files.stat(source, { follow: false });
  await files.mkdir(posix.dirname(target), null);
  record.written();
  await files.rename(source, target);
  return { message: 'renamed' };
}
