import { spawnSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { writeFileAtomicallySync } from '../../lib/atomic-file.js';
import { syncDirectorySync } from '../../lib/directories.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { newId } from '../../lib/uuid.js';
import { findBinaries } from './binaries.js';
import type { DataDirectory } from './directory.js';
import { chooseIdentity, type Identity } from './identity.js';

interface WalArchive {
  directory: string;
  id: string;
}

/** How long a committed change may wait for its segment to be archived. */
const ARCHIVE_TIMEOUT_SECS = 60;

/** Kept in the data directory, so that commands beside a stopped service leave no gap in the archive. */
function fileOf({ root }: DataDirectory): string {
  return join(root, 'wal-archive.json');
}

export function findWalArchive(directory: DataDirectory): string | undefined {
  const archive = read(directory);
  return archive && join(archive.directory, archive.id);
}

export const walOf = (root: string) => join(root, 'wal');
export const baseOf = (root: string) => join(root, 'base');
export const keysOf = (root: string) => join(root, 'keys');

/**
 * Begins an archive in `path`, continues the one that was begun there, or ends it for null. An archive that is away,
 * such as on a disk that is not mounted, stops no start. Throws ExplainedError for a directory in which none can begin.
 */
export function useWalArchive(directory: DataDirectory, path: string | null): void {
  if (path === null) return rmSync(fileOf(directory), { force: true });
  const whole = resolve(path);
  if (read(directory)?.directory === whole) return;
  if (!statSync(whole, { throwIfNoEntry: false })?.isDirectory()) {
    throw new ExplainedError(
      `the directory ${whole} of --wal-archive-dir does not exist: create it, or mount its disk`,
    );
  }
  const id = newId();
  const root = join(whole, id);
  mkdirSync(root);
  chmodSync(root, 0o711);
  for (const part of [walOf(root), baseOf(root), keysOf(root)]) mkdirSync(part, { mode: 0o700 });
  requireWritableBy(chooseIdentity(findBinaries(), directory.root), root);
  syncDirectorySync(root);
  syncDirectorySync(whole);
  writeFileAtomicallySync(fileOf(directory), JSON.stringify({ directory: whole, id }), { replace: true });
}

function requireWritableBy(identity: Identity, root: string): void {
  giveWal(identity, root);
  const [program, ...args] = identity.wrap(['test', '-w', walOf(root)]);
  if (spawnSync(program!, args, { ...identity.spawnOptions, cwd: '/' }).status === 0) return;
  rmSync(root, { recursive: true, force: true });
  throw new ExplainedError(
    `PostgreSQL, which runs as ${identity.description}, cannot write in ${root}: choose a --wal-archive-dir that others may enter`,
  );
}

export function walArchiveSettings(directory: DataDirectory, identity: Identity): Record<string, string> {
  const root = findWalArchive(directory);
  if (root === undefined) return {};
  try {
    giveWal(identity, root);
  } catch {
    // The archiver fails then, and the service reports it.
  }
  return {
    archive_mode: 'on',
    archive_command: archiveCommand(walOf(root)),
    archive_timeout: `${ARCHIVE_TIMEOUT_SECS}s`,
  };
}

function giveWal({ owner }: Identity, root: string): void {
  const { uid } = statSync(walOf(root));
  if (uid !== owner.uid) chownSync(walOf(root), owner.uid, owner.gid);
}

/** After a crash PostgreSQL archives a segment again, so the same content is accepted. */
function archiveCommand(wal: string): string {
  return `
umask 077
file=${quoted(wal)}/%f.gz
part="$file.$$"
if [ -e "$file" ]; then
  gzip -dc "$file" | cmp -s - "%p" || { echo "$file has another content, and is not replaced" >&2; exit 1; }
else
  { gzip -1 -c "%p" > "$part" && sync "$part" && mv "$part" "$file"; } || { rm -f "$part"; exit 1; }
fi
sync "$file" ${quoted(wal)}`;
}

/** A status above 128 ends the recovery: a damaged segment must not count as the end of the log. */
export function restoreCommand(wal: string): string {
  return `
file=${quoted(wal)}/%f.gz
[ -e "$file" ] || exit 1
gzip -dc "$file" > "%p" || exit 255`;
}

/** For the shell, after PostgreSQL has replaced its placeholders. */
function quoted(path: string): string {
  return `'${path.replaceAll("'", `'\\''`).replaceAll('%', '%%')}'`;
}

/**
 * The age of the oldest segment that waits for the archive, in seconds. 0: none does. Infinity: they cannot be listed.
 */
export function walWaitingSecs({ cluster }: DataDirectory): number {
  const status = join(cluster, 'pg_wal', 'archive_status');
  try {
    const times = readdirSync(status)
      .filter((name) => name.endsWith('.ready'))
      .map((name) => statSync(join(status, name), { throwIfNoEntry: false })?.mtimeMs ?? Infinity);
    return Math.max(0, (Date.now() - Math.min(...times, Date.now())) / 1_000);
  } catch {
    return Infinity;
  }
}

function read(directory: DataDirectory): WalArchive | undefined {
  const file = fileOf(directory);
  let text: string;
  try {
    text = readFileSync(file, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  try {
    return JSON.parse(text) as WalArchive;
  } catch (cause) {
    throw new ExplainedError(`${file} is damaged: remove it, and the next start begins a new archive`, {
      cause,
    });
  }
}
