import { absolutePath, present, statIfThere } from './entry.js';
import type { SandboxFile } from './schema.js';
import type { FileSession } from './session.js';

export async function stat({ files }: FileSession, path: string): Promise<{ metadata: SandboxFile }> {
  const absolute = absolutePath(path);
  return { metadata: present(absolute, await files.stat(absolute, { follow: false })) };
}

export async function exists({ files }: FileSession, path: string): Promise<{ exists: boolean }> {
  const found = await statIfThere(files, absolutePath(path), { follow: true });
  return { exists: found !== undefined };
}
