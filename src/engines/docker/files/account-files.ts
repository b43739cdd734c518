import type Docker from 'dockerode';
import { StartRefusedError } from '../../../engine/runtime.js';
import type { ContainerdPlace } from '../containerd.js';
import { SERVER_ERROR, statusOf } from '../errors.js';
import { AGENT_PROGRAM, GUEST_DIRECTORY, INIT_PROGRAM, PROGRAMS_DIRECTORY } from '../../../guest/programs.js';
import { behind, isBelow, lookAtDisk, placeOf, statOf, targetsOf, type Stat } from './disk-stat.js';
import { RESOLVER_FILES } from '../../../machine-network/resolver-files.js';

/**
 * The engine reads these files on the disk of a sandbox, as the machine's root, whatever user the sandbox has: by a
 * plain open and to their end. At a named pipe it waits for ever, with the lock of the container. It also keeps all
 * matching lines in memory.
 */
const ACCOUNT_FILES = ['/etc/passwd', '/etc/group'] as const;
const SERVICE_TARGETS: ReadonlySet<string> = new Set([
  ...RESOLVER_FILES,
  GUEST_DIRECTORY,
  // Containers of earlier releases have a mount for each program.
  PROGRAMS_DIRECTORY,
  INIT_PROGRAM,
  AGENT_PROGRAM,
]);
const DIRECTORY = '/etc';
/** The agent reads as much of them. */
const LARGEST_BYTES = 1024 * 1024;

/** Their parents are directories of the image, which overlayfs does not rename, or the top of the disk. */
const FIXED_TARGETS: ReadonlySet<string> = new Set([...RESOLVER_FILES, GUEST_DIRECTORY]);

/** A guest can rename the parents of such a mount, and then put a pipe at its path. */
export function canMove(target: string): boolean {
  return !FIXED_TARGETS.has(target);
}

/**
 * Throws StartRefusedError unless the engine can read the users of a container, and place its mounts.
 *
 * The stat of the engine sees the mounts, and the reader of users sees the disk below them: a mount must not hide a
 * file. A file in a volume is refused too, because another sandbox could replace it meanwhile. For a stat, Docker 29
 * opens the path of each mount of a file, and waits at a pipe for ever. So the service looks at the disk itself where a
 * guest can have put one there.
 */
export async function checkAccountFiles(
  container: Docker.Container,
  inspected: Docker.ContainerInspectInfo,
  containerd: ContainerdPlace | undefined,
): Promise<void> {
  const targets = targetsOf(inspected);
  try {
    if (!targets.some(canMove)) return await check(statOf(container), targets);
    await lookAtDisk(container, inspected, containerd, check);
  } catch (error) {
    throw explain(error, targets);
  }
}

async function check(stat: Stat, targets: readonly string[]): Promise<void> {
  const directory = await stat(DIRECTORY);
  if (directory && directory.type !== 'directory') throw refusal(DIRECTORY, 'is not a directory');
  const places: string[] = [];
  for (const target of targets) {
    const place = await placeOf(target, stat);
    if (place === undefined) throw refusal(DIRECTORY, `cannot be told from the mount at ${target}`);
    if ((await stat(place))?.type === 'other') throw misplaced(target);
    places.push(place);
  }
  for (const file of ACCOUNT_FILES) {
    let place: string = file;
    let found = directory && (await stat(file));
    if (found?.type === 'symlink') {
      // Every link of the target has been followed.
      const target = behind(found);
      if (target === undefined) throw refusal(found.target, 'has a name that is not UTF-8');
      place = target;
      found = await stat(place);
    }
    const hiding = places.findIndex((point) => isBelow(place, point));
    if (hiding !== -1) throw refusal(file, `is hidden by the mount at ${targets[hiding]}`);
    if (!found) continue;
    if (found.type !== 'file') throw refusal(file, `is ${describe(found.type)}`);
    if (found.size > LARGEST_BYTES) throw refusal(file, `has more than ${LARGEST_BYTES} bytes`);
  }
}

/**
 * The engine places every mount for a stat. Its error has no words: a link of the sandbox may lead a mount to a place
 * that does not fit.
 */
function explain(error: unknown, targets: readonly string[]): unknown {
  if (statusOf(error) !== SERVER_ERROR) return error;
  const own = targets.filter((target) => !SERVICE_TARGETS.has(target));
  const place = own.length === 0 ? targets : own;
  return new StartRefusedError(
    `a mount cannot be placed at ${place.join(' or ')}: check that mounts[].guest is a directory, or for a file a file`,
    { cause: error },
  );
}

function misplaced(target: string): StartRefusedError {
  return new StartRefusedError(
    `a mount cannot be placed at ${target}, where the sandbox has a pipe or a device: create the sandbox again, and leave the path as it is`,
  );
}

function describe(type: 'directory' | 'symlink' | 'other'): string {
  if (type === 'other') return 'a pipe or a device';
  return type === 'directory' ? 'a directory' : 'a chain of links';
}

function refusal(path: string, fault: string): StartRefusedError {
  return new StartRefusedError(
    `${path} of the sandbox ${fault}, so its users cannot be read: create the sandbox again, and leave the path as it is`,
  );
}
