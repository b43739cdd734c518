import { Buffer } from 'node:buffer';
import { posix } from 'node:path';
import { contentOf, SCRIPTS_DIRECTORY, scriptTexts } from '../../engine/run-files.js';
import { GuestFileError, type FileStat, type Guest, type GuestFiles } from '../../guest/guest.js';
import { StartRefusedError } from '../../engine/runtime.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { START_FILE } from './pod.js';

type Patch = RunSpec['patches'][number];

const FILE_MODE = 0o644;
const SCRIPT_MODE = 0o755;
const DIRECTORY_MODE = 0o755;
const PERMISSIONS = 0o7777;
const TYPE = 0o170000;
const TYPES = { file: 0o100000, directory: 0o040000 };
const PIECE = 128 * 1024;
const CREATE = { read: false, write: true, append: false, create: true, truncate: true, createNew: false };

/**
 * Applies the patches, writes the scripts, and lets the command start: as the user of the sandbox, by its agent. A
 * repetition after the command may start does nothing. Throws StartRefusedError that names the failed patch.
 */
export async function populatePod(guest: Guest, spec: RunSpec): Promise<void> {
  const files = guest.files();
  try {
    if (await statPath(files, START_FILE)) return;
    for (const [index, patch] of spec.patches.entries()) {
      try {
        await apply(files, patch);
      } catch (error) {
        if (!(error instanceof PatchError || error instanceof GuestFileError)) throw error;
        throw new StartRefusedError(`patches[${index}] cannot be applied: ${error.message}`, {
          cause: error,
        });
      }
    }
    for (const [name, text] of scriptTexts(spec)) {
      await writeFile(files, `${SCRIPTS_DIRECTORY}/${name}`, Buffer.from(text), SCRIPT_MODE);
    }
    await writeFile(files, START_FILE, Buffer.alloc(0), FILE_MODE);
  } finally {
    files.end();
  }
}

class PatchError extends Error {}

async function apply(files: GuestFiles, patch: Patch): Promise<void> {
  switch (patch.type) {
    case 'text':
    case 'file': {
      const found = await mayReplace(files, patch.path, patch.replace);
      await makeParents(files, patch.path);
      const mode = patch.mode ?? (isOf(found, 'file') ? found!.mode & PERMISSIONS : FILE_MODE);
      if (found) await files.remove(patch.path);
      return writeFile(files, patch.path, contentOf(patch), mode);
    }
    case 'symlink': {
      const found = await mayReplace(files, patch.link, patch.replace);
      await makeParents(files, patch.link);
      if (found) await files.remove(patch.link);
      return files.symlink(patch.target, patch.link);
    }
    case 'mkdir': {
      const found = await statPath(files, patch.path);
      if (found && !isOf(found, 'directory'))
        throw new PatchError(`${patch.path} exists and is not a directory`);
      if (found && patch.mode == null) return;
      await makeParents(files, patch.path);
      return files.mkdir(patch.path, patch.mode ?? DIRECTORY_MODE);
    }
    case 'append': {
      const found = await statPath(files, patch.path, { follow: true });
      if (!found) throw new PatchError(`${patch.path} does not exist`);
      if (!isOf(found, 'file')) throw new PatchError(`${patch.path} is not a file`);
      return write(files, patch.path, Buffer.from(patch.content), found.size, {
        ...CREATE,
        create: false,
        truncate: false,
        mode: 0,
      });
    }
    case 'remove':
    case 'copy_file':
    case 'copy_dir':
      throw new PatchError(`this runtime has no ${patch.type}`);
  }
}

async function mayReplace(files: GuestFiles, path: string, replace: boolean): Promise<FileStat | undefined> {
  const found = await statPath(files, path);
  if (isOf(found, 'directory')) throw new PatchError(`${path} is a directory`);
  if (found && !replace) throw new PatchError(`${path} already exists, and replace is false`);
  return found;
}

async function makeParents(files: GuestFiles, path: string): Promise<void> {
  const parent = posix.dirname(path);
  const found = await statPath(files, parent, { follow: true });
  if (found && !isOf(found, 'directory')) throw new PatchError(`${parent} is not a directory`);
  if (!found) await files.mkdir(parent, null);
}

async function writeFile(files: GuestFiles, path: string, content: Buffer, mode: number): Promise<void> {
  await write(files, path, content, 0n, { ...CREATE, mode });
  // The umask of the image does not count.
  await files.setStat(path, { mode }, { follow: false });
}

async function write(
  files: GuestFiles,
  path: string,
  content: Buffer,
  offset: bigint,
  options: Parameters<GuestFiles['open']>[1],
): Promise<void> {
  const handle = await files.open(path, options);
  for (let at = 0; at < content.length; at += PIECE) {
    await files.write(handle, offset + BigInt(at), content.subarray(at, at + PIECE));
  }
  await files.close(handle);
}

async function statPath(
  files: GuestFiles,
  path: string,
  options = { follow: false },
): Promise<FileStat | undefined> {
  try {
    return await files.stat(path, options);
  } catch (error) {
    if (error instanceof GuestFileError && error.errnoName === 'ENOENT') return undefined;
    throw error;
  }
}

function isOf(stat: FileStat | undefined, type: keyof typeof TYPES): boolean {
  return stat !== undefined && (stat.mode & TYPE) === TYPES[type];
}
