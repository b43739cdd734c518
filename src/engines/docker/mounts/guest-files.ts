import { chmod, mkdir, symlink, writeFile } from 'node:fs/promises';
import { basename, dirname, join, relative } from 'node:path';
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
    await writeWithMode(placeOf(program), content, 0o555);
    // Containers of earlier releases have a mount for each program, and no mount of the directory.
    await symlink(relative(directory, placeOf(program)), join(directory, basename(program)));
  }
  // A member of a pool has a file system of its own there, for the scripts of its create.
  await makeDirectory(placeOf(SCRIPTS_DIRECTORY));
  for (const [name, text] of scriptTexts(spec))
    await writeWithMode(join(placeOf(SCRIPTS_DIRECTORY), name), text, 0o755);
}

/** A text, or a link to a path of the sandbox, which the service does not follow. */
export type GuestFile = Buffer | { link: string };

/** `directory`: as of `writeGuestFiles`, before its mount goes to the container. */
export async function addGuestFiles(directory: string, files: ReadonlyMap<string, GuestFile>): Promise<void> {
  for (const [path, file] of files) {
    const place = join(directory, GUEST_FILES, relative(GUEST_DIRECTORY, path));
    await mkdir(dirname(place), { recursive: true });
    await chmod(dirname(place), 0o755);
    if (Buffer.isBuffer(file)) await writeWithMode(place, file, 0o444);
    else await symlink(file.link, place);
  }
}

/** The umask must not keep guest users from reading it. */
async function makeDirectory(path: string): Promise<void> {
  await mkdir(path);
  await chmod(path, 0o755);
}

async function writeWithMode(path: string, content: string | Buffer, mode: number): Promise<void> {
  await writeFile(path, content);
  await chmod(path, mode);
}
