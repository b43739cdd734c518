import { accessSync, chmodSync, constants, mkdtempSync, realpathSync, rmdirSync, statSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { makeDirectories } from '../../lib/directories.js';
import { ExplainedError } from '../../lib/explained-error.js';

export interface DataDirectory {
  root: string;
  /** The files of PostgreSQL. */
  cluster: string;
  /** The folder of PostgreSQL's socket, for its owner only. */
  run: string;
  log: string;
  /** The current owner; see ownership.ts. */
  owner: string;
}

/** The limit on the path of a unix socket: 107 bytes on Linux, 103 on macOS. */
const LONGEST_SOCKET = process.platform === 'darwin' ? 103 : 107;
/** The longest name of a socket in the data directory: a claim of ownership.ts. */
const LONGEST_NAME = '.claim.4194304.ffffff';

/** Creates a missing data directory. Throws ExplainedError when it is unusable. */
export function openDataDirectory(path: string): DataDirectory {
  let root: string;
  try {
    if (statSync(path, { throwIfNoEntry: false })?.isFile()) throw new Error('it is a file');
    const made = makeDirectories(path, 0o711);
    root = realpathSync(path);
    // Other users may traverse a new folder, whatever the umask: PostgreSQL may run as one. An existing folder keeps
    // its mode.
    if (made !== undefined) chmodSync(root, 0o711);
    accessSync(root, constants.R_OK | constants.X_OK);
    checkWritable(root);
    makeDirectories(join(root, 'run'), 0o700);
  } catch (cause) {
    throw unusable(path, cause as NodeJS.ErrnoException);
  }
  const longest = Buffer.byteLength(join(root, LONGEST_NAME));
  if (longest > LONGEST_SOCKET) {
    throw new ExplainedError(
      `the path of the data directory ${root} is ${longest - LONGEST_SOCKET} bytes too long for a unix socket in it: choose a shorter --data-dir`,
    );
  }
  return layoutOf(root);
}

/** Undefined when it does not exist. Creates nothing. Throws ExplainedError when this user cannot read it. */
export function findDataDirectory(path: string): DataDirectory | undefined {
  try {
    const found = statSync(path, { throwIfNoEntry: false });
    if (!found) return undefined;
    if (!found.isDirectory()) throw new Error('it is not a directory');
    accessSync(path, constants.R_OK | constants.X_OK);
    return layoutOf(realpathSync(path));
  } catch (cause) {
    throw unusable(path, cause as NodeJS.ErrnoException);
  }
}

/** Throws ExplainedError. `access` would allow writes to a file system that became read-only after an error. */
export function requireWritable(path: string): void {
  try {
    checkWritable(path);
  } catch (cause) {
    throw unusable(path, cause as NodeJS.ErrnoException);
  }
}

function checkWritable(root: string): void {
  rmdirSync(mkdtempSync(join(root, '.writable-')));
}

const REMEDIES: Partial<Record<string, string>> = {
  EACCES: 'run the command as the user of the service, or as root',
  EROFS: 'mount its file system for writing; the kernel log says whether an error made it read-only',
  ENOSPC: 'free some space and inodes on its file system',
  EDQUOT: 'raise the disk quota of the user of the service',
};

function unusable(path: string, cause: NodeJS.ErrnoException): ExplainedError {
  const remedy = REMEDIES[cause.code ?? ''];
  const message = `the data directory ${path} cannot be used: ${cause.message}`;
  return new ExplainedError(remedy === undefined ? message : `${message}; ${remedy}`, { cause });
}

/** Throws ExplainedError when this user cannot create the missing data directory. Creates nothing. */
export function checkCreatable(path: string): void {
  let parent = dirname(resolve(path));
  while (!statSync(parent, { throwIfNoEntry: false })) parent = dirname(parent);
  try {
    accessSync(parent, constants.W_OK | constants.X_OK);
  } catch (cause) {
    throw new ExplainedError(
      `the data directory ${path} does not exist, and this user may not create it in ${parent}: choose another --data-dir, or create it as root and give it to this user`,
      { cause },
    );
  }
}

/** The cluster gets this name when it is complete. */
export function hasCluster({ cluster }: DataDirectory): boolean {
  return statSync(cluster, { throwIfNoEntry: false }) !== undefined;
}

export function noInstallation(path: string): ExplainedError {
  const directory = resolve(path);
  return new ExplainedError(
    `no installation in ${directory}; run "sandkeep serve --data-dir ${directory}" to create one`,
  );
}

function layoutOf(root: string): DataDirectory {
  return {
    root,
    cluster: join(root, 'postgres'),
    run: join(root, 'run'),
    log: join(root, 'postgres.log'),
    owner: join(root, 'owner.json'),
  };
}
