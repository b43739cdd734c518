import type Docker from 'dockerode';
import { posix } from 'node:path';
import { StartRefusedError } from '../../../engine/runtime.js';
import { followedPath, statPath, writeEntries, type Entry } from '../archive.js';
import { findUser } from './find-user.js';

/**
 * Makes the missing parts of a working directory for the user of the sandbox, in a container that has not started.
 * Parts below a mount are left to process 1: every user may write there. Throws StartRefusedError.
 */
export async function makeWorkdir(
  container: Docker.Container,
  { workdir, user, mounts }: { workdir: string; user: string; mounts: readonly string[] },
): Promise<void> {
  const missing: string[] = [];
  for (let part = posix.resolve(workdir); part !== '/'; part = posix.dirname(part)) {
    if (mounts.includes(part)) return;
    const real = await followedPath(container, part);
    const found = real === undefined ? undefined : await statPath(container, real);
    if (found?.type === 'directory') break;
    if (found) throw new StartRefusedError('runtime.workdir is not a directory');
    missing.unshift(part);
  }
  if (missing.length === 0) return;
  // A start with an unknown user is refused by the engine, in its own words.
  const owner = await findUser(container, user);
  if (!owner) return;
  await writeEntries(
    container,
    missing.map((name): Entry => ({ name, type: 'directory', mode: 0o755, ...owner })),
  );
}
