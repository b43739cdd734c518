import { execFile, spawn } from 'node:child_process';
import { closeSync, existsSync, mkdtempSync, openSync, readdirSync, readFileSync, renameSync } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { syncDirectorySync } from '../../lib/directories.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { sleep } from '../../lib/sleep.js';
import { findBinaries } from './binaries.js';
import type { DataDirectory } from './directory.js';
import { chooseIdentity, giveTo, type Identity } from './identity.js';
import { clearPredecessor, readPidFile } from './postmaster.js';
import { walArchiveSettings } from './wal-archive.js';

const run = promisify(execFile);

const MAJOR = '18';
const STOP_TIMEOUT_MS = 60_000;

/**
 * The other settings are PostgreSQL's defaults, with full durability. The small ones save nine idle processes and 10
 * MB.
 */
const SETTINGS = {
  listen_addresses: '',
  unix_socket_permissions: '0700',
  max_connections: '100',
  shared_buffers: '128MB',
  io_method: 'sync',
  jit: 'off',
  timezone: 'UTC',
  log_timezone: 'UTC',
  log_min_messages: 'warning',
  log_checkpoints: 'off',
  max_logical_replication_workers: '0',
};

const ENVIRONMENT = { LC_ALL: 'C', PATH: '/usr/local/bin:/usr/bin:/bin' };

/**
 * Runs PostgreSQL until its standard input, a pipe from this process, ends: a killed service also stops its database.
 * The shell ignores SIGINT in background processes, so PostgreSQL may lose a SIGINT during its start. It ends by the
 * SIGTERM then; later the SIGINT makes the stop fast. A signal interrupts `wait`, hence the loop.
 */
const GUARD = `
exec 3<&0
"$@" </dev/null 3<&- &
server=$!
stop() { kill -TERM $server; kill -INT $server; } 2>/dev/null
trap stop INT TERM
( read -r line <&3; stop ) &
watcher=$!
exec 3<&-
while kill -0 $server 2>/dev/null; do wait $server; status=$?; done
kill $watcher 2>/dev/null
exit $status
`;

export interface EmbeddedServer {
  /** The remains of a killed predecessor: none, a live server, or stale files. */
  predecessor: 'none' | 'stopped' | 'stale';
  identity: string;
  exited: Promise<void>;
  stop(): Promise<void>;
}

/** Starts PostgreSQL, and creates a missing cluster. Only the owner of the directory may call it. */
export async function startServer(
  directory: DataDirectory,
  settings: Readonly<Record<string, string>> = {},
): Promise<EmbeddedServer> {
  const made = isClusterMade(directory);
  const predecessor = await clearPredecessor(directory);
  const identity = chooseIdentity(findBinaries(), directory.root);
  if (!made) await makeCluster(directory, identity);
  giveTo(identity.owner, directory.cluster);
  giveTo(identity.owner, directory.run);

  const command = identity.wrap([
    identity.binaries.postgres,
    '-D',
    directory.cluster,
    '-k',
    directory.run,
    ...Object.entries({ ...SETTINGS, ...walArchiveSettings(directory, identity), ...settings }).flatMap(
      ([name, value]) => ['-c', `${name}=${value}`],
    ),
  ]);
  // A pipe would break when this process ends before the database.
  const log = openSync(directory.log, 'a', 0o600);
  const child = spawn('sh', ['-c', GUARD, 'sh', ...command], {
    ...identity.spawnOptions,
    cwd: directory.cluster,
    // Its own process group: Ctrl-C in a terminal must not reach the database before this process closes it.
    detached: true,
    stdio: ['pipe', log, log],
    env: ENVIRONMENT,
  });
  closeSync(log);
  child.stdin!.on('error', () => undefined);
  const exited = new Promise<void>((resolve) => {
    child.once('error', () => resolve());
    child.once('exit', () => resolve());
  });
  await waitUntilReady(directory, exited);
  return {
    predecessor,
    identity: identity.description,
    exited,
    async stop() {
      child.stdin!.end();
      const patience = new AbortController();
      const late = await Promise.race([
        exited.then(() => false),
        sleep(STOP_TIMEOUT_MS, patience.signal).then(() => true),
      ]);
      patience.abort();
      if (late) throw new ExplainedError(`PostgreSQL did not stop within ${STOP_TIMEOUT_MS / 1000} s`);
    },
  };
}

/**
 * Creates the cluster in a temporary folder, so that a killed start leaves no partial cluster. Each attempt has its own
 * folder: the initdb of a killed start may run on and empty its folder.
 */
export async function makeCluster(directory: DataDirectory, identity: Identity): Promise<void> {
  const prefix = 'postgres.partial-';
  for (const name of readdirSync(directory.root).filter((other) => other.startsWith(prefix))) {
    // `rmSync` of Node 24 ends silently when a file disappears meanwhile.
    await rm(join(directory.root, name), { recursive: true, force: true, maxRetries: 10 });
  }
  const partial = mkdtempSync(join(directory.root, prefix));
  giveTo(identity.owner, partial);
  const [program, ...args] = identity.wrap([
    identity.binaries.initdb,
    `--pgdata=${partial}`,
    '--username=sandkeep',
    '--encoding=UTF8',
    '--locale-provider=builtin',
    '--builtin-locale=C.UTF-8',
    '--auth-local=trust',
    '--auth-host=reject',
  ]);
  try {
    await run(program!, args, { ...identity.spawnOptions, cwd: partial, env: ENVIRONMENT });
  } catch (cause) {
    const { stderr, message } = cause as Error & { stderr?: string };
    throw new ExplainedError(`initdb failed in ${directory.root}: ${stderr?.trim() || message}`, { cause });
  }
  renameSync(partial, directory.cluster);
  // PostgreSQL syncs its own files, not the name of their directory.
  syncDirectorySync(directory.root);
}

/** Throws ExplainedError for a cluster of another version, or another content. */
function isClusterMade({ cluster }: DataDirectory): boolean {
  let version: string;
  try {
    version = readFileSync(join(cluster, 'PG_VERSION'), 'utf8').trim();
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    if (code !== 'ENOENT') throw new ExplainedError(`the database cannot be read: ${message}`, { cause });
    if (!existsSync(cluster) || readdirSync(cluster).length === 0) return false;
    throw new ExplainedError(
      `${cluster} is not empty and has no PG_VERSION, so it is not a database: restore it, or move it away for a new one`,
      { cause },
    );
  }
  if (version !== MAJOR) {
    throw new ExplainedError(
      `${cluster} was made by PostgreSQL ${version} and this Sandkeep brings PostgreSQL ${MAJOR}: run "sandkeep backup <file>" with the Sandkeep release that made it, then "sandkeep restore <file>" with this one and a new --data-dir (docs/backups.md)`,
    );
  }
  return true;
}

/** No time-out: after a crash PostgreSQL replays its log, and a stop would start the replay over. */
async function waitUntilReady(directory: DataDirectory, exited: Promise<void>): Promise<void> {
  let gone = false;
  void exited.then(() => (gone = true));
  while (readPidFile(directory)?.status !== 'ready') {
    if (gone) {
      throw new ExplainedError(
        `PostgreSQL ended during its start; the end of ${directory.log}:\n${tail(directory.log)}`,
      );
    }
    await sleep(5);
  }
}

function tail(path: string): string {
  return readFileSync(path, 'utf8').trimEnd().split('\n').slice(-8).join('\n');
}
