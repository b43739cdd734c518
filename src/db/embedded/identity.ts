import { spawnSync, type SpawnOptions } from 'node:child_process';
import {
  chownSync,
  cpSync,
  existsSync,
  lstatSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { join } from 'node:path';
import { ExplainedError } from '../../lib/explained-error.js';
import { binariesIn, type Binaries } from './binaries.js';

/**
 * The user of PostgreSQL, which refuses to run as root: a system user, or `nobody` in a user namespace. In a namespace
 * folders below /root stay reachable.
 */
export interface Identity {
  /** For log lines. */
  description: string;
  /** The owner of PostgreSQL's files, outside the namespace. */
  owner: { uid: number; gid: number };
  binaries: Binaries;
  /** The command line that runs `command` as this user. */
  wrap(command: readonly string[]): string[];
  spawnOptions: Pick<SpawnOptions, 'uid' | 'gid'>;
}

const NAMESPACE = ['unshare', '--user', '--map-user=65534', '--map-group=65534', '--'];

/** Throws ExplainedError when no user can run PostgreSQL in the directory. */
export function chooseIdentity(binaries: Binaries, directory: string): Identity {
  const uid = process.getuid?.() ?? -1;
  if (uid !== 0) {
    return {
      description: 'the current user',
      owner: { uid, gid: process.getgid?.() ?? -1 },
      binaries,
      wrap: (command) => [...command],
      spawnOptions: {},
    };
  }

  const user = systemUser('postgres') ?? systemUser('nobody');
  if (user && canEnter(user, directory) && canRun(user, binaries.postgres)) return asUser(user, binaries);
  if (spawnSync(NAMESPACE[0]!, [...NAMESPACE.slice(1), binaries.postgres, '--version']).status === 0) {
    return {
      description: 'nobody, in a user namespace',
      owner: { uid: 0, gid: 0 },
      binaries,
      wrap: (command) => [...NAMESPACE, ...command],
      spawnOptions: {},
    };
  }
  if (user && canEnter(user, directory)) return asUser(user, copyOf(binaries, directory));
  throw new ExplainedError(
    `PostgreSQL does not run as root, and ${user ? `the user ${user.name} cannot enter ${directory}` : 'there is no user "postgres" or "nobody" here'}: ` +
      'choose a --data-dir that others may enter (such as /var/lib/sandkeep), run sandkeep as another user, or set DATABASE_URL',
  );
}

/** Changes the owner of everything below `path`. */
export function giveTo(owner: Identity['owner'], path: string): void {
  const stat = lstatSync(path);
  if (stat.uid !== owner.uid || stat.gid !== owner.gid) {
    // Following a link could give away a file elsewhere.
    if (stat.isSymbolicLink()) return;
    chownSync(path, owner.uid, owner.gid);
  }
  if (stat.isDirectory()) for (const name of readdirSync(path)) giveTo(owner, join(path, name));
}

interface User {
  name: string;
  uid: number;
  gid: number;
}

function asUser(user: User, binaries: Binaries): Identity {
  return {
    description: `the user ${user.name}`,
    owner: { uid: user.uid, gid: user.gid },
    binaries,
    wrap: (command) => [...command],
    spawnOptions: { uid: user.uid, gid: user.gid },
  };
}

function systemUser(name: string): User | undefined {
  for (const line of readFileSync('/etc/passwd', 'utf8').split('\n')) {
    const [login, , uid, gid] = line.split(':');
    if (login === name) return { name, uid: Number(uid), gid: Number(gid) };
  }
  return undefined;
}

function canEnter(user: User, directory: string): boolean {
  return spawnSync('test', ['-x', directory], { cwd: '/', uid: user.uid, gid: user.gid }).status === 0;
}

function canRun(user: User, program: string): boolean {
  return spawnSync(program, ['--version'], { cwd: '/', uid: user.uid, gid: user.gid }).status === 0;
}

/** Copies the binaries next to the data, for a checkout below /root on a machine without user namespaces. */
function copyOf(binaries: Binaries, directory: string): Binaries {
  const manifest = readFileSync(join(binaries.root, '..', 'package.json'), 'utf8');
  const root = join(directory, `postgres-${(JSON.parse(manifest) as { version: string }).version}`);
  if (!existsSync(root)) {
    const partial = `${root}.partial`;
    rmSync(partial, { recursive: true, force: true });
    cpSync(binaries.root, partial, { recursive: true, verbatimSymlinks: true });
    renameSync(partial, root);
  }
  return binariesIn(root);
}
