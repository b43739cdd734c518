import { join } from 'node:path';
import pg from 'pg';
import { ExplainedError } from '../lib/explained-error.js';
import { sleep } from '../lib/sleep.js';
import {
  findDataDirectory,
  hasCluster,
  noInstallation,
  openDataDirectory,
  type DataDirectory,
} from './embedded/directory.js';
import { askOwner, takeOwnership, type Owner, type Ownership } from './embedded/ownership.js';
import { answers, readPidFile, socketPath } from './embedded/postmaster.js';
import { startServer, type EmbeddedServer } from './embedded/server.js';
import { useWalArchive } from './embedded/wal-archive.js';
import { clusterOf } from './external/cluster.js';
import { parseHosts } from './external/hosts.js';
import { connectAlone, type Address } from './pool.js';
import { refuseUnfinished } from './unfinished-restore.js';

export interface Database {
  address: Address;
  /** Undefined when another process runs it. */
  server: EmbeddedServer | undefined;
  close(): Promise<void>;
}

export interface DatabaseOptions {
  databaseUrl: string | undefined;
  dataDir: string;
  command: string;
}

export interface Supervision {
  /** Where the embedded PostgreSQL archives its log. Null: nowhere. Undefined: where it did before. */
  walArchiveDir?: string | null | undefined;
  /** Settings of the embedded PostgreSQL beside those of the service. */
  settings?: Readonly<Record<string, string>>;
  /** The server ended unexpectedly, or its restart failed. */
  onCrash(error?: unknown): void;
}

const RESTART_AFTER_MS = 1_000;
const NEIGHBOUR_TIMEOUT_MS = 30_000;

/**
 * Opens the database for a server: by its URL, or the embedded one. Throws ExplainedError when another process has it.
 */
export async function openForServer(options: DatabaseOptions & Supervision): Promise<Database> {
  refuseUnfinished(options.dataDir);
  if (options.databaseUrl !== undefined) {
    if (typeof options.walArchiveDir === 'string') {
      throw new ExplainedError(
        '--wal-archive-dir is for the embedded database: an external PostgreSQL archives its log by its own settings',
      );
    }
    return external(options.databaseUrl, options.dataDir);
  }
  const { directory, ownership } = await ownDirectory(options.dataDir, options.command);
  try {
    if (options.walArchiveDir !== undefined) useWalArchive(directory, options.walArchiveDir);
  } catch (error) {
    ownership.release();
    throw error;
  }
  return embedded(directory, ownership, options);
}

export interface OwnedDirectory {
  directory: DataDirectory;
  ownership: Ownership;
}

/** Creates a missing data directory, and takes it. Throws ExplainedError when another process has it. */
export async function ownDirectory(dataDir: string, command: string): Promise<OwnedDirectory> {
  const directory = openDataDirectory(dataDir);
  const ownership = await takeOwnership(directory, command);
  if (isOwner(ownership)) {
    throw new ExplainedError(
      `the data directory ${directory.root} is in use by "sandkeep ${ownership.command}" (process ${ownership.pid}): stop it, or choose another --data-dir`,
    );
  }
  return { directory, ownership };
}

/** Starts the embedded database of a directory. `close` stops the server; the directory stays taken. */
export function openOwned(
  { directory }: OwnedDirectory,
  settings?: Readonly<Record<string, string>>,
): Promise<Database> {
  return embedded(directory, { release: () => undefined }, undefined, settings);
}

/**
 * Opens the database for a command, beside a running server if there is one. Without `create` a missing database is an
 * error.
 */
export async function openForCommand(
  options: DatabaseOptions,
  { create = false }: { create?: boolean } = {},
): Promise<Database> {
  refuseUnfinished(options.dataDir);
  if (options.databaseUrl !== undefined) return external(options.databaseUrl, options.dataDir);
  if (!create) await requireInstallation(options.dataDir);
  const directory = openDataDirectory(options.dataDir);
  const deadline = Date.now() + NEIGHBOUR_TIMEOUT_MS;
  for (;;) {
    const ownership = await takeOwnership(directory, options.command);
    if (!isOwner(ownership)) {
      if (create || hasCluster(directory)) return embedded(directory, ownership);
      ownership.release();
      throw noInstallation(options.dataDir);
    }
    if (readPidFile(directory)?.status === 'ready' && (await answers(socketPath(directory)))) {
      const address = { socket: directory.run };
      if (ownership.command === 'serve' && (await accepts(address))) {
        return { address, server: undefined, close: () => Promise.resolve() };
      }
    }
    if (Date.now() > deadline) {
      const owner = (await askOwner(directory)) ?? ownership;
      throw new ExplainedError(
        `the data directory ${directory.root} is in use by "sandkeep ${owner.command}" (process ${owner.pid}): try again when it is done`,
      );
    }
    await sleep(50);
  }
}

/** Throws ExplainedError without a database. A service during its first start counts as one. */
export async function requireInstallation(dataDir: string): Promise<void> {
  const directory = findDataDirectory(dataDir);
  if (directory && (hasCluster(directory) || (await askOwner(directory)))) return;
  throw noInstallation(dataDir);
}

/** Beside the keys: it reveals a previous primary that a restart of the service finds. */
const TIMELINE_FILE = 'database-timeline';

/** Without `dataDir` nothing is written beside the database. */
export function external(url: string, dataDir?: string): Database {
  checkUrl(url);
  if (dataDir !== undefined) clusterOf(url).keepIn(join(dataDir, TIMELINE_FILE));
  return { address: { url }, server: undefined, close: () => Promise.resolve() };
}

/** The URL holds a password, so no message and no `cause` repeats it. */
function checkUrl(url: string): void {
  const { connectionParameters } = new pg.Client({
    connectionString: parseHosts(url).url,
    options: OWN_OPTIONS,
  }) as unknown as { connectionParameters: { options: string } };
  if (connectionParameters.options === OWN_OPTIONS) return;
  throw new ExplainedError(
    'the database URL must not have "options": sessions have those of the service, which keep organizations apart. Set others with ALTER ROLE … SET',
  );
}

const OWN_OPTIONS = '-c timezone=UTC';

async function embedded(
  directory: DataDirectory,
  ownership: Ownership,
  supervision?: Supervision,
  settings = supervision?.settings,
): Promise<Database> {
  const address = { socket: directory.run };
  let server: EmbeddedServer;
  try {
    server = await startServer(directory, settings);
  } catch (error) {
    ownership.release();
    throw error;
  }
  const closing = new AbortController();
  const watched = supervision && superviseServer(supervision);
  try {
    await nameDatabase(address);
  } catch (error) {
    await close();
    throw error;
  }
  return { address, server, close };

  async function close(): Promise<void> {
    closing.abort();
    await server.stop();
    await watched;
    ownership.release();
  }

  async function superviseServer(told: Supervision): Promise<void> {
    for (;;) {
      await server.exited;
      if (closing.signal.aborted) return;
      told.onCrash();
      try {
        server = await startServer(directory, told.settings);
        if (closing.signal.aborted) return await server.stop();
      } catch (error) {
        told.onCrash(error);
        await sleep(RESTART_AFTER_MS, closing.signal);
      }
    }
  }
}

async function nameDatabase(address: Address): Promise<void> {
  const client = await connectAlone(address, { database: 'template1' });
  try {
    const { rows } = await client.query("select from pg_database where datname = 'sandkeep'");
    if (rows.length === 0) await client.query('alter database postgres rename to sandkeep');
  } finally {
    await client.end();
  }
}

async function accepts(address: Address): Promise<boolean> {
  try {
    const client = await connectAlone(address);
    try {
      const { rows } = await client.query<{ made: boolean }>(
        "select to_regclass('instance') is not null as made",
      );
      return rows[0]!.made;
    } finally {
      await client.end();
    }
  } catch {
    return false;
  }
}

function isOwner(result: Ownership | Owner): result is Owner {
  return 'pid' in result;
}
