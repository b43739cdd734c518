import { posix } from 'node:path';
import { ApiError } from '../../http/errors.js';
import { MAX_ENTRIES } from '../../volumes/files/list.js';
import { absolutePath, kindOf, present } from './entry.js';
import type { SandboxFile } from './schema.js';
import type { FileSession } from './session.js';

export async function list({ files, ended }: FileSession, path: string): Promise<SandboxFile[]> {
  const top = absolutePath(path);
  if (kindOf(await files.stat(top, { follow: true })) !== 'directory') {
    throw new ApiError('invalid_sandbox_path', `${top} is not a directory`);
  }
  const handle = await files.openDir(top);
  const entries: SandboxFile[] = [];
  let seen = 0;
  for (;;) {
    const batch = await files.readDir(handle);
    if (batch.length === 0 || ended.aborted) break;
    for (const { name, ...found } of batch) entries.push(present(posix.join(top, name), found));
    seen += batch.length;
    if (seen > MAX_ENTRIES) {
      const message = `the directory has more than ${MAX_ENTRIES} entries, which is the limit of a list`;
      throw new ApiError('invalid_sandbox_path', message);
    }
  }
  return entries.toSorted((a, b) => (a.path < b.path ? -1 : 1));
}
