import { chmodSync, existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { makeDirectories } from '../lib/directories.js';
import { ExplainedError } from '../lib/explained-error.js';
import {
  ENVIRONMENT_FILE,
  environmentFile,
  isUnchanged,
  unitOf,
  usersFile,
  type UnitOptions,
} from './install-unit.js';

const UNIT_FILE = '/etc/systemd/system/sandkeep.service';
const USERS_FILE = '/etc/sysusers.d/sandkeep.conf';

export interface InstalledFile {
  path: string;
  mode: number;
  text: string;
  /** The operator owns an existing one. */
  isKept: boolean;
}

export type Outcome = 'written' | 'unchanged' | 'kept' | 'removed' | 'absent';

export interface Target {
  /** The root of the system to which the files belong. */
  root: string;
  /** Replaces or removes changed files. */
  force: boolean;
}

export function filesOf(options: UnitOptions, databaseUrl: string | undefined): InstalledFile[] {
  const users = { path: USERS_FILE, mode: 0o644, text: usersFile(options.dataDir), isKept: false };
  return [
    { path: UNIT_FILE, mode: 0o644, text: unitOf(options), isKept: false },
    ...(options.runtime.unitRights ? [] : [users]),
    { path: ENVIRONMENT_FILE, mode: 0o600, text: environmentFile(databaseUrl), isKept: true },
  ];
}

/** Throws ExplainedError, before it writes, when the operator has changed a file. */
export function writeFiles(files: readonly InstalledFile[], { root, force }: Target): [string, Outcome][] {
  const planned = files.map((file) => ({ ...file, outcome: outcomeOf(file, { root, force }) }));
  return planned.map(({ path, mode, text, outcome }) => {
    if (outcome === 'written') explained(path, () => replaceFile(join(root, path), text, mode));
    return [path, outcome];
  });
}

/** The environment file stays: it may have the only copy of a secret. */
export function removeFiles(target: Target): [string, Outcome][] {
  const paths = [UNIT_FILE, USERS_FILE];
  for (const path of paths) refuseChanged(path, target, 'remove');
  const removed = paths.map((path): [string, Outcome] => {
    if (!existsSync(join(target.root, path))) return [path, 'absent'];
    explained(path, () => rmSync(join(target.root, path)));
    return [path, 'removed'];
  });
  const hasEnvironment = existsSync(join(target.root, ENVIRONMENT_FILE));
  return [...removed, [ENVIRONMENT_FILE, hasEnvironment ? 'kept' : 'absent']];
}

function outcomeOf({ path, text, isKept }: InstalledFile, target: Target): Outcome {
  const found = readText(path, target.root);
  if (found === undefined) return 'written';
  if (isKept) {
    const { mode } = statSync(join(target.root, path));
    if ((mode & 0o077) !== 0) {
      throw new ExplainedError(`other users may read ${path}, which holds secrets: run "chmod 0600 ${path}"`);
    }
    if (text === environmentFile(undefined) || found === text) return 'kept';
    throw new ExplainedError(`${path} exists, so the command does not change it: edit DATABASE_URL in it`);
  }
  if (found === text) return 'unchanged';
  refuseChanged(path, target, 'replace');
  return 'written';
}

function refuseChanged(path: string, { root, force }: Target, verb: string): void {
  const found = readText(path, root);
  if (force || found === undefined || isUnchanged(found)) return;
  throw new ExplainedError(
    `${path} was changed by hand, so the command does not ${verb} it: move the changes to "systemctl edit sandkeep" and repeat the command with --force`,
  );
}

function readText(path: string, root: string): string | undefined {
  return explained(path, () => {
    const file = join(root, path);
    return existsSync(file) ? readFileSync(file, 'utf8') : undefined;
  });
}

function replaceFile(file: string, text: string, mode: number): void {
  makeDirectories(dirname(file), 0o755);
  writeFileSync(file, text, { mode });
  // An existing file keeps its mode, and the umask limits that of a new one.
  chmodSync(file, mode);
}

function explained<T>(path: string, work: () => T): T {
  try {
    return work();
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    const remedy =
      code === 'EACCES' || code === 'EPERM' ? 'run the command as root, for instance with sudo' : message;
    throw new ExplainedError(`cannot use ${path} (${code}): ${remedy}`, { cause });
  }
}
