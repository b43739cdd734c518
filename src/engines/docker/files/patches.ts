import type Docker from 'dockerode';
import { posix } from 'node:path';
import { contentOf } from '../../../engine/run-files.js';
import { StartRefusedError } from '../../../engine/runtime.js';
import type { RunSpec } from '../../../spec/run-spec.js';
import { followedPath, readFile, statPath, writeEntries, type Entry, type PathStat } from '../archive.js';

type Patch = RunSpec['patches'][number];

const FILE_MODE = 0o644;
const DIRECTORY_MODE = 0o755;
/** An append reads the whole file into memory. */
const LARGEST_APPENDED_BYTES = 16 * 1024 * 1024;

/**
 * Throws StartRefusedError that names the failed patch; the container is then useless. `check` runs after each patch
 * that can lead a mount to another path of the image.
 */
export async function applyPatches(
  container: Docker.Container,
  { patches }: RunSpec,
  check?: () => Promise<void>,
): Promise<void> {
  for (const [index, patch] of patches.entries()) {
    try {
      await apply(container, patch);
      if (patch.type === 'symlink') await check?.();
    } catch (error) {
      if (!(error instanceof PatchError)) throw error;
      throw new StartRefusedError(`patches[${index}] cannot be applied: ${error.message}`, { cause: error });
    }
  }
}

class PatchError extends Error {}

async function apply(container: Docker.Container, patch: Patch): Promise<void> {
  switch (patch.type) {
    case 'text':
    case 'file': {
      const found = await mayReplace(container, patch.path, patch.replace);
      const mode = patch.mode ?? (found?.type === 'file' ? found.mode : FILE_MODE);
      const content = contentOf(patch);
      return put(container, patch.path, (name) => ({ name, type: 'file', mode, content }));
    }
    case 'symlink':
      await mayReplace(container, patch.link, patch.replace);
      return put(container, patch.link, (name) => ({ name, type: 'symlink', target: patch.target }));
    case 'mkdir': {
      const found = await statPath(container, patch.path);
      if (found && found.type !== 'directory')
        throw new PatchError(`${patch.path} exists and is not a directory`);
      if (found && patch.mode == null) return;
      const mode = patch.mode ?? DIRECTORY_MODE;
      return put(container, patch.path, (name) => ({ name, type: 'directory', mode }));
    }
    case 'append':
      return append(container, patch.path, patch.content);
    case 'remove':
    case 'copy_file':
    case 'copy_dir':
      throw new PatchError(`this runtime has no ${patch.type}`);
  }
}

async function mayReplace(
  container: Docker.Container,
  path: string,
  replace: boolean,
): Promise<PathStat | undefined> {
  const found = await statPath(container, path);
  if (found?.type === 'directory') throw new PatchError(`${path} is a directory`);
  if (found && !replace) throw new PatchError(`${path} already exists, and replace is false`);
  return found;
}

async function append(container: Docker.Container, path: string, content: string): Promise<void> {
  const file = await followLinks(container, path);
  const found = await statPath(container, file);
  if (!found) throw new PatchError(`${path} does not exist`);
  if (found.type !== 'file') throw new PatchError(`${path} is not a file`);
  if (found.size > LARGEST_APPENDED_BYTES) {
    throw new PatchError(`${path} has more than ${LARGEST_APPENDED_BYTES / 1024 / 1024} MiB`);
  }
  const before = await readFile(container, file, LARGEST_APPENDED_BYTES);
  if (!before) throw new PatchError(`${path} is not a file`);
  const after = { ...before, content: Buffer.concat([before.content, Buffer.from(content)]) };
  await writeEntries(container, [after]);
}

async function followLinks(container: Docker.Container, path: string): Promise<string> {
  const file = await followedPath(container, path);
  if (file === undefined) throw new PatchError(`${path} leads through too many symbolic links`);
  return file;
}

async function put(
  container: Docker.Container,
  path: string,
  entryOf: (name: string) => Entry,
): Promise<void> {
  await ensureDirectory(container, posix.dirname(path));
  await writeEntries(container, [entryOf(path)]);
}

async function ensureDirectory(container: Docker.Container, path: string): Promise<void> {
  if (path === '/') return;
  const found = await statPath(container, path);
  if (found?.type === 'directory' || found?.type === 'symlink') return;
  if (found) throw new PatchError(`${path} is not a directory`);
  await put(container, path, (name) => ({ name, type: 'directory', mode: DIRECTORY_MODE }));
}
