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
 * As whom PostgreSQL runs. It refuses to run as root, so a root process has to give it another identity:
 * a system user, or `nobody` inside a user namespace of its own, where even folders that only root may enter
 * (a checkout under /root) stay reachable.
 */
export interface Identity {
  /** What to say of it in a log line. */
  description: string;
  /** The owner that PostgreSQL's files must have, seen from outside. */
  owner: { uid: number; gid: number };
  binaries: Binaries;
  /** Turns a command line into the one that runs it under this identity. */
  wrap(command: readonly string[]): string[];
  spawnOptions: Pick<SpawnOptions, 'uid' | 'gid'>;
}

const NAMESPACE = ['unshare', '--user', '--map-user=65534', '--map-group=65534', '--'];

/** Chooses the identity for a database in `directory`, which must exist. Throws ExplainedError with what to do. */
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

/** Gives everything below `path` to the identity, when it is not its own already. */
export function giveTo(owner: Identity['owner'], path: string): void {
  const stat = lstatSync(path);
  if (stat.uid !== owner.uid || stat.gid !== owner.gid) {
    // A link is never followed: whoever could write here must not be handed a file elsewhere.
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

/** The binaries beside the data, for a checkout that only root may enter on a machine without user namespaces. */
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
