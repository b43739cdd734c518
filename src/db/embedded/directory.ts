import { accessSync, chmodSync, constants, realpathSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { makeDirectories } from '../../lib/directories.js';
import { ExplainedError } from '../../lib/explained.js';

/** Where things lie in a data directory. */
export interface DataDirectory {
  root: string;
  /** PostgreSQL's own files. */
  cluster: string;
  /** PostgreSQL's socket; only its owner may enter. */
  run: string;
  log: string;
  /** Says who owns the data directory; see ownership.ts. */
  owner: string;
}

/** A unix socket's path has at most 107 bytes on Linux and 103 on macOS. */
const LONGEST_SOCKET = process.platform === 'darwin' ? 103 : 107;
/** Of the sockets in the data directory, a claim to it has the longest name; see ownership.ts. */
const LONGEST_NAME = '.claim.4194304.ffffff';

/** Makes the data directory when it is missing. Throws ExplainedError with what to do when it cannot be used. */
export function openDataDirectory(path: string): DataDirectory {
  let root: string;
  try {
    if (statSync(path, { throwIfNoEntry: false })?.isFile()) throw new Error('it is a file');
    const made = makeDirectories(path, 0o711);
    root = realpathSync(path);
    // Others may pass through (PostgreSQL may run as another user than ours) but not look around, whatever the umask
    // is. A folder that was there before keeps its mode: it may be everybody's.
    if (made !== undefined) chmodSync(root, 0o711);
    accessSync(root, constants.R_OK | constants.W_OK | constants.X_OK);
    makeDirectories(join(root, 'run'), 0o700);
  } catch (cause) {
    throw new ExplainedError(`the data directory ${path} cannot be used: ${(cause as Error).message}`, {
      cause,
    });
  }
  const directory = {
    root,
    cluster: join(root, 'postgres'),
    run: join(root, 'run'),
    log: join(root, 'postgres.log'),
    owner: join(root, 'owner.json'),
  };
  const longest = Buffer.byteLength(join(root, LONGEST_NAME));
  if (longest > LONGEST_SOCKET) {
    throw new ExplainedError(
      `the path of the data directory ${root} is ${longest - LONGEST_SOCKET} bytes too long for a unix socket in it: choose a shorter --data-dir`,
    );
  }
  return directory;
}
