import { renameSync } from 'node:fs';
import { hasCluster } from '../db/embedded/directory.js';
import { useWalArchive } from '../db/embedded/wal-archive.js';
import { readClosed, readInstance, setClosed } from '../db/instance-queries.js';
import { isMigrated, migrate } from '../db/migrate.js';
import {
  external,
  openOwned,
  ownDirectory,
  requireInstallation,
  type Database,
  type OwnedDirectory,
} from '../db/open.js';
import { openPool, type PgPool } from '../db/pool.js';
import { prepareRequestRole } from '../db/request-role.js';
import { refuseUnfinished } from '../db/unfinished-restore.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { Resources } from '../lib/resources.js';
import { refuseBesideService } from '../workers/refuse-beside-service.js';
import { isEmptyDatabase, loadDatabase, removeCopy } from './database/load.js';
import { copyRows, inSnapshot } from './database/snapshot.js';
import type { Places } from './files/kept-files.js';
import { verifyRestored, type Verification } from './verify-restored.js';

export const EMBEDDED = 'embedded';

export interface MoveOptions {
  places: Places;
  /** Undefined: the embedded database. */
  databaseUrl: string | undefined;
  /** A URL, or `EMBEDDED`. */
  to: string;
  onTable?: (name: string) => void;
}

export interface Move {
  rows: number;
  verification: Verification;
  /** The name of the old cluster, which made room for the new one. */
  setAside: string | undefined;
  /** Tables that are not of this service. */
  foreign: string[];
}

const UNFINISHED =
  'a move into this database has not finished: run "sandkeep database move" with the same options again';
const MOVED = 'this installation was moved to ';
const CLOSE_TIMEOUT_MS = 60_000;

/**
 * Copies the database of a stopped service. The old one is closed before the new one is opened: a killed move leaves at
 * most one of them in use, and the next move completes it. Keys and volumes stay in their place.
 */
export async function moveDatabase(options: MoveOptions): Promise<Move> {
  const { places, databaseUrl, to } = options;
  if ((databaseUrl ?? EMBEDDED) === to)
    throw new ExplainedError('--to names the database that the installation has: name another');
  if (databaseUrl === undefined) await requireInstallation(places.dataDir);
  refuseUnfinished(places.dataDir);
  const resources = new Resources(CLOSE_TIMEOUT_MS, () => undefined);
  try {
    const owned = await ownIn(resources, places.dataDir, 'database move');
    const { pool: source, database } = await openIn(resources, databaseUrl, owned);
    await requireStopped(source);
    const { target, setAside } = await openTarget(resources, to, owned);
    if (await isResumed(source, target)) {
      await setClosed(target, null);
      const verification = await verifyRestored(target, places);
      return { rows: 0, verification, setAside, foreign: [] };
    }
    // The copy has the tables of this release.
    await migrate(database.address);
    return { ...(await copy(source, target, options)), setAside };
  } finally {
    await resources.closeAll();
  }
}

/** Opens a database that a move has closed: its later copy must not be in use. */
export async function reopenDatabase({
  dataDir,
  databaseUrl,
}: {
  dataDir: string;
  databaseUrl: string | undefined;
}): Promise<string | null> {
  if (databaseUrl === undefined) await requireInstallation(dataDir);
  refuseUnfinished(dataDir);
  const resources = new Resources(CLOSE_TIMEOUT_MS, () => undefined);
  try {
    const owned = await ownIn(resources, dataDir, 'database reopen');
    const { pool } = await openIn(resources, databaseUrl, owned);
    const closed = await closedOf(pool);
    if (closed !== null && !closed.startsWith(MOVED)) throw new ExplainedError(closed);
    if (closed !== null) await setClosed(pool, null);
    return closed;
  } finally {
    await resources.closeAll();
  }
}

interface Opened {
  pool: PgPool;
  database: Database;
  close(): Promise<void>;
}

async function open(url: string | undefined, owned: OwnedDirectory): Promise<Opened> {
  const database = url === undefined ? await openOwned(owned) : external(url);
  const pool = openPool(database.address, () => undefined);
  const close = async () => {
    await pool.end();
    await database.close();
  };
  return { pool, database, close };
}

async function openIn(resources: Resources, url: string | undefined, owned: OwnedDirectory): Promise<Opened> {
  const opened = await open(url, owned);
  resources.add('the database', () => opened.close());
  return opened;
}

async function ownIn(resources: Resources, dataDir: string, command: string): Promise<OwnedDirectory> {
  const owned = await ownDirectory(dataDir, command);
  resources.add('the data directory', () => Promise.resolve(owned.ownership.release()));
  return owned;
}

async function requireStopped(source: PgPool): Promise<void> {
  if (!(await isMigrated(source)))
    throw new ExplainedError('there is no installation in the database to move');
  await refuseBesideService(source);
}

/** Null also without an installation. */
async function closedOf(pool: PgPool): Promise<string | null> {
  return (await isMigrated(pool)) ? readClosed(pool) : null;
}

/** An empty database. Removes an unfinished copy, and sets an embedded database aside that was moved away before. */
async function openTarget(
  resources: Resources,
  to: string,
  owned: OwnedDirectory,
): Promise<{ target: PgPool; setAside: string | undefined }> {
  if (to !== EMBEDDED) {
    const { pool: target } = await openIn(resources, to, owned);
    if ((await isEmptyDatabase(target)) || (await closedOf(target)) === UNFINISHED)
      return { target, setAside: undefined };
    throw new ExplainedError('the database of --to has tables: create a new database and name it');
  }
  const setAside = hasCluster(owned.directory) ? await setAsideMoved(owned) : undefined;
  const { pool: target } = await openIn(resources, undefined, owned);
  return { target, setAside };
}

/** Returns the new name of the cluster; undefined: it is empty, or an unfinished copy. */
async function setAsideMoved(owned: OwnedDirectory): Promise<string | undefined> {
  const { cluster } = owned.directory;
  const opened = await open(undefined, owned);
  const { pool } = opened;
  try {
    if (!(await isMigrated(pool))) return undefined;
    const closed = await closedOf(pool);
    if (closed === UNFINISHED) return undefined;
    if (!closed?.startsWith(MOVED)) {
      throw new ExplainedError(
        `${cluster} is a database in use: choose another --data-dir with the keys of the service, or move that directory away`,
      );
    }
  } finally {
    await opened.close();
  }
  const setAside = `${cluster}.moved-${now().replace(/\D/g, '').slice(0, 14)}`;
  renameSync(cluster, setAside);
  // The archive is of the old cluster.
  useWalArchive(owned.directory, null);
  return setAside;
}

/** The source is closed and the target complete: only its opening is missing. */
async function isResumed(source: PgPool, target: PgPool): Promise<boolean> {
  const closed = await closedOf(source);
  if (closed === null) return false;
  const isSame =
    (await closedOf(target)) === UNFINISHED &&
    (await readInstance(source)).id === (await readInstance(target)).id;
  if (closed.startsWith(MOVED) && isSame) return true;
  throw new ExplainedError(closed);
}

async function copy(
  source: PgPool,
  target: PgPool,
  { places, to, onTable = () => undefined }: MoveOptions,
): Promise<Omit<Move, 'setAside'>> {
  if (!(await isEmptyDatabase(target))) await removeCopy(target);
  const { counts, foreign } = await inSnapshot(source, async ({ tx, description, foreign }) => {
    const read = new Map<string, number>();
    const counts = await loadDatabase(target, {
      description,
      closed: UNFINISHED,
      async *rowsOf(table) {
        onTable(table.name);
        const rows = copyRows(tx, table);
        yield* rows.content;
        read.set(table.name, rows.count());
      },
      check(table, rows) {
        if (rows !== read.get(table))
          throw new Error(`${table} has ${rows} rows in place of ${read.get(table)}`);
      },
    });
    return { counts, foreign };
  });
  await prepareRequestRole(target);
  const verification = await verifyRestored(target, places);
  if (verification.faults.length > 0) {
    throw new ExplainedError(
      `the copy is not right (${verification.faults[0]}): the installation stays where it is; look with "sandkeep events verify"`,
    );
  }
  await setClosed(
    source,
    `${MOVED}${withoutPassword(to)} at ${now()}: name that database, or use this old state again with "sandkeep database reopen"`,
  );
  await setClosed(target, null);
  return { rows: [...counts.values()].reduce((sum, rows) => sum + rows, 0), verification, foreign };
}

/** The URL without user, password and parameters. */
function withoutPassword(to: string): string {
  if (to === EMBEDDED) return 'the embedded database';
  if (!URL.canParse(to)) return 'an external database';
  const { host, pathname } = new URL(to);
  return `postgres://${host}${pathname}`;
}
