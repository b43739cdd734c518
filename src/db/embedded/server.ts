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

const run = promisify(execFile);

const MAJOR = '18';
const STOP_TIMEOUT_MS = 60_000;

/**
 * Everything else is PostgreSQL's default, full durability (fsync, synchronous_commit) above all.
 * The lean ones save nine idle processes and some 10 MB.
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
 * Runs PostgreSQL until its standard input, a pipe from us, ends: also when we are killed, the database then stops in
 * order. A shell starts what is in the background with SIGINT ignored, so that one would be lost on a PostgreSQL that
 * has not got to its own handlers yet; SIGTERM ends it there, and later the SIGINT after it hastens the stop that it
 * began. `wait` returns early when a signal arrives, hence the loop around it.
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
  /** What a killed predecessor had left: nothing, a server that ran on, or only its files. */
  predecessor: 'none' | 'stopped' | 'stale';
  identity: string;
  /** Resolves when the server ended, whether asked to or not. */
  exited: Promise<void>;
  stop(): Promise<void>;
}

/** Starts PostgreSQL in the directory, making the cluster at first. Call it only as owner of the directory. */
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
    ...Object.entries({ ...SETTINGS, ...settings }).flatMap(([name, value]) => ['-c', `${name}=${value}`]),
  ]);
  // A file and not a pipe: a database that outlives us must not break on a log that nobody reads.
  const log = openSync(directory.log, 'a', 0o600);
  const child = spawn('sh', ['-c', GUARD, 'sh', ...command], {
    ...identity.spawnOptions,
    cwd: directory.cluster,
    // A group of its own: Ctrl-C in a terminal is for us, and we stop the database when we are done with it.
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
 * Made aside and moved into place, so that a start that was killed half way leaves nothing that looks like a cluster.
 * Every try has a folder of its own: the initdb of a killed start runs on for a while, and in the end may empty its own.
 */
export async function makeCluster(directory: DataDirectory, identity: Identity): Promise<void> {
  const prefix = 'postgres.partial-';
  for (const name of readdirSync(directory.root).filter((other) => other.startsWith(prefix))) {
    // Not by `rmSync`: in Node 24 that ends half way, and says nothing, when a file goes meanwhile that it has seen.
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

/** Is there a cluster? Throws ExplainedError when there is one that we cannot use, or something else in its place. */
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
      `${cluster} was made by PostgreSQL ${version} and this Sandkeep brings PostgreSQL ${MAJOR}: use the Sandkeep release that made it`,
    );
  }
  return true;
}

/** Without a limit: after a crash PostgreSQL first redoes its log, and a stop on the way would make it begin again. */
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
