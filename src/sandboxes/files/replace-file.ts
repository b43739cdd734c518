import { randomUUID } from 'node:crypto';
import { posix } from 'node:path';
import { ApiError } from '../../http/errors.js';
import type { FileAttributes, FileStat } from '../../guest/guest.js';
import { absolutePath, kindOf, statIfThere } from './entry.js';
import type { FileSession } from './session.js';

const NEW_FILE_MODE = 0o644;
const PERMISSIONS = 0o777;

/**
 * Replaces a file in one step: `fill` writes a file beside it, which is then renamed. Makes missing directories. A link
 * keeps leading to its target. The new file has the owner and the permissions of the replaced one, without setuid and
 * setgid.
 */
export async function replaceFile(
  { files, record, discard }: FileSession,
  path: string,
  fill: (temporary: string) => Promise<void>,
  like?: FileStat,
): Promise<void> {
  const named = absolutePath(path);
  if (named === '/') throw new ApiError('invalid_sandbox_path', 'the top of the sandbox is a directory');
  await files.mkdir(posix.dirname(named), null);
  const target = await files.realPath(named);
  const replaced = await statIfThere(files, target, { follow: false });
  if (replaced && kindOf(replaced) !== 'file') {
    throw new ApiError('sandbox_file_exists', `${named} is not a file`);
  }
  const temporary = posix.join(posix.dirname(target), `.sandkeep-${randomUUID()}`);
  record.written();
  try {
    await fill(temporary);
    await files.setStat(temporary, attributesOf(replaced, like), { follow: false });
    await files.rename(temporary, target);
  } catch (error) {
    await discard(temporary);
    throw error;
  }
}

function attributesOf(replaced?: FileStat, like?: FileStat): FileAttributes {
  const mode = ((replaced ?? like)?.mode ?? NEW_FILE_MODE) & PERMISSIONS;
  return replaced ? { uid: replaced.uid, gid: replaced.gid, mode } : { mode };
}
