import { absolutePath } from './entry.js';
import type { FileSession } from './session.js';

export async function makeDirectory(
  { files, record }: FileSession,
  path: string,
): Promise<{ message: string }> {
  record.written();
  await files.mkdir(absolutePath(path), null);
  return { message: 'the directory is there' };
}
