import { ApiError } from '../../http/errors.js';
import { absolutePath, kindOf } from './entry.js';
import type { FileSession } from './session.js';

export async function remove(
  { files, record }: FileSession,
  path: string,
  { recursive }: { recursive: boolean },
): Promise<{ message: string }> {
  const absolute = absolutePath(path);
  if (absolute === '/') {
    throw new ApiError('invalid_sandbox_path', 'the top of the sandbox cannot be removed');
  }
  const isDirectory = kindOf(await files.stat(absolute, { follow: false })) === 'directory';
  if (recursive && !isDirectory) {
    throw new ApiError(
      'invalid_sandbox_path',
      'the path does not lead to a directory: leave x-msb-file-recursive out to remove a file',
    );
  }
  record.written();
  if (isDirectory) await files.removeDir(absolute, { recursive });
  else await files.remove(absolute);
  return { message: isDirectory ? 'the directory is removed' : 'the file is removed' };
}
