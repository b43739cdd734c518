import { chmodSync, mkdirSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { ExplainedError } from '../../lib/explained.js';

/** Where things lie in a data directory. */
export interface DataDirectory {
  root: string;
  /** PostgreSQL's own files. */
  cluster: string;
  /** PostgreSQL's socket; only its owner may enter. */
  run: string;
  log: string;
  /** The socket whose listener owns the data directory. */
  owner: string;
}

/** A unix socket's path has at most 107 bytes on Linux and 103 on macOS. */
const LONGEST_SOCKET = process.platform === 'darwin' ? 103 : 107;

/** Makes the data directory when it is missing. Throws ExplainedError with what to do when it cannot be used. */
export function openDataDirectory(path: string): DataDirectory {
  let root: string;
  try {
    mkdirSync(path, { recursive: true, mode: 0o711 });
    root = realpathSync(path);
    mkdirSync(join(root, 'run'), { recursive: true, mode: 0o700 });
    // Others may pass through (PostgreSQL may run as another user than ours) but not look around.
    if (process.getuid?.() === 0) chmodSync(root, 0o711);
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
    owner: join(root, 'owner.sock'),
  };
  const longest = Buffer.byteLength(join(directory.run, '.s.PGSQL.5432'));
  if (longest > LONGEST_SOCKET) {
    throw new ExplainedError(
      `the path of the data directory ${root} is ${longest - LONGEST_SOCKET} bytes too long for a unix socket in it: choose a shorter --data-dir`,
    );
  }
  return directory;
}
