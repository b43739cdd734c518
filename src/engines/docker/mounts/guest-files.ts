import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises';
import { basename, join, relative } from 'node:path';
import { SCRIPTS_DIRECTORY, scriptTexts } from '../../../engine/run-files.js';
import { GUEST_DIRECTORY, PROGRAMS_DIRECTORY } from '../../../guest/programs.js';
import type { RunSpec } from '../../../spec/run-spec.js';
import { mountTmpfs } from './bind-mount.js';

/** The directory of a start that the sandbox has as GUEST_DIRECTORY. */
export const GUEST_FILES = 'guest';

/**
 * Writes the programs of the service and the scripts of a sandbox to a file system of its own, so that they are one
 * mount. A guest can rename the parents of a mount, and then put a pipe or nothing at its path. It cannot rename a
 * mount at the top of its disk.
 *
 * The files stay with the mount of the container when `directory` is removed. Each start gets others: sandboxes with
 * the same inodes would see each other by inotify, and could talk by locks.
 */
export async function writeGuestFiles(
  directory: string,
  programs: ReadonlyMap<string, Buffer>,
  spec: RunSpec,
): Promise<void> {
  const placeOf = (path: string) => join(directory, GUEST_FILES, relative(GUEST_DIRECTORY, path));
  await mkdir(join(directory, GUEST_FILES));
  await mountTmpfs(join(directory, GUEST_FILES));
  await makeDirectory(placeOf(PROGRAMS_DIRECTORY));
  for (const [program, content] of programs) {
    await writeExecutable(placeOf(program), content, 0o555);
    // Containers of earlier releases have a mount for each program, and no mount of the directory.
    await symlink(relative(directory, placeOf(program)), join(directory, basename(program)));
  }
  const scripts = scriptTexts(spec);
  if (scripts.length > 0) await makeDirectory(placeOf(SCRIPTS_DIRECTORY));
  for (const [name, text] of scripts)
    await writeExecutable(join(placeOf(SCRIPTS_DIRECTORY), name), text, 0o755);
}

/** The umask must not keep guest users from reading it. */
async function makeDirectory(path: string): Promise<void> {
  await mkdir(path);
  await chmod(path, 0o755);
}

async function writeExecutable(path: string, content: string | Buffer, mode: number): Promise<void> {
  await writeFile(path, content);
  await chmod(path, mode);
}
