import { lstatSync, readdirSync, rmSync } from 'node:fs';
import { resolve } from 'node:path';
import type { DataDirectory } from '../db/embedded/directory.js';
import { clearPredecessor } from '../db/embedded/postmaster.js';
import { readClosed } from '../db/instance-queries.js';
import { isMigrated } from '../db/migrate.js';
import { external, openOwned, ownDirectory, type Database, type OwnedDirectory } from '../db/open.js';
import { openPool, type PgPool } from '../db/pool.js';
import { findUnfinished, markUnfinished, type UnfinishedRestore } from '../db/unfinished-restore.js';
import { makeDirectories } from '../lib/directories.js';
import { ENGINE_DIRECTORIES } from '../engines/register.js';
import { ExplainedError } from '../lib/explained-error.js';
import { newId } from '../lib/uuid.js';
import { isEmptyDatabase, removeCopy } from './database/load.js';
import { EVENT_HEADS_PART, EVENT_KEYS_PART, SECRET_KEYS_PART } from './archive/format.js';
import { headsFileOf, keyFilesOf, type Places } from './files/kept-files.js';

/** Names that may be in an empty data directory: those of the operator, and those of a process that owns it. */
const ALLOWED =
  /^(?:sandkeep\.(?:ya?ml|json)|lost\+found|run|owner\.json.*|\.?claim\..*|unfinished-restore.*|postgres\.partial-.*|postgres-\d.*)$/;
/** The log that a restore to a moment replays. */
export const STAGED_WAL = 'restored-wal';
/** Names that a restore and its database create. */
const CREATED = ['postgres', 'postgres.log', STAGED_WAL, ...ENGINE_DIRECTORIES];

export interface Target {
  owned: OwnedDirectory;
  database: Database;
  pool: PgPool;
  id: string;
  /** A killed restore of the same file has finished all but its mark. */
  isComplete: boolean;
  markComplete(): void;
  close(): Promise<void>;
}

interface TargetOptions {
  places: Places;
  databaseUrl: string | undefined;
  file: string;
  /** The key files that the restore writes; others may be there. */
  keyFiles: readonly string[];
  /** The organizations whose volumes it writes. */
  orgs: readonly string[];
  /** Makes the files of the embedded database, and returns settings for its start. */
  prepare?: (directory: DataDirectory) => Promise<Record<string, string>>;
}

export function closedByRestore(id: string): string {
  return `a restore into this database has not finished (${id}): run "sandkeep restore" with the same options again, which begins by removing what it left`;
}

/**
 * Takes an empty data directory and an empty database, and marks the directory. Removes an unfinished restore there
 * first. Throws ExplainedError where anything else is.
 */
export async function openTarget(options: TargetOptions): Promise<Target> {
  const { places, databaseUrl, file } = options;
  const owned = await ownDirectory(places.dataDir, 'restore');
  let opened: Database | undefined;
  let pool: PgPool | undefined;
  try {
    const unfinished = findUnfinished(places.dataDir);
    if (databaseUrl !== undefined) {
      opened = external(databaseUrl);
      pool = openPool(opened.address, () => undefined);
    }
    const isComplete = pool !== undefined && (await isCompleteCopy(pool, unfinished, resolve(file)));
    const creates = creations(options);
    const mark = isComplete ? unfinished! : { id: newId(), file: resolve(file), creates };
    if (!isComplete) {
      if (unfinished) {
        await clearPredecessor(owned.directory);
        removeFiles(unfinished);
      }
      requireEmpty(options, creates);
      if (pool) await requireEmptyDatabase(pool, unfinished);
      markUnfinished(places.dataDir, mark);
    }
    opened ??= await openOwned(owned, await options.prepare?.(owned.directory));
    const database = opened;
    const open = (pool ??= openPool(database.address, () => undefined));
    return {
      owned,
      database,
      pool: open,
      id: mark.id,
      isComplete,
      markComplete: () => markUnfinished(places.dataDir, { ...mark, isComplete: true }),
      async close() {
        await open.end();
        await database.close();
        owned.ownership.release();
      },
    };
  } catch (error) {
    await pool?.end();
    await opened?.close();
    owned.ownership.release();
    throw error;
  }
}

function creations({ places, keyFiles, orgs }: TargetOptions): string[] {
  return [
    ...CREATED.map((name) => resolve(places.dataDir, name)),
    ...[headsFileOf(places).path, ...keyFiles].map((path) => resolve(path)),
    ...new Set(orgs.map((id) => resolve(places.volumesDir, id))),
  ];
}

function removeFiles({ creates }: UnfinishedRestore): void {
  for (const path of creates) rmSync(path, { recursive: true, force: true, maxRetries: 10 });
}

function requireEmpty({ places, keyFiles }: TargetOptions, creates: readonly string[]): void {
  const { dataDir, volumesDir } = places;
  makeDirectories(volumesDir, 0o700);
  const own = keyFilesOf(places)
    .filter(({ path }) => !keyFiles.includes(path))
    .map(({ path }) => resolve(path));
  const allowed = new Set([resolve(volumesDir), ...own]);
  const found = [
    ...readdirSync(dataDir)
      .filter((name) => !ALLOWED.test(name))
      .map((name) => resolve(dataDir, name)),
    ...readdirSync(volumesDir)
      .filter((name) => name !== 'lost+found')
      .map((name) => resolve(volumesDir, name)),
    ...creates.filter((path) => lstatSync(path, { throwIfNoEntry: false }) !== undefined),
  ].filter((path) => !allowed.has(path));
  if (found.length === 0) return;
  throw new ExplainedError(
    `a restore needs an empty place, and ${found[0]} exists: choose another --data-dir, or move what is there away`,
  );
}

async function requireEmptyDatabase(pool: PgPool, unfinished: UnfinishedRestore | undefined): Promise<void> {
  if (await isEmptyDatabase(pool)) return;
  if (unfinished && (await isClosedBy(pool, closedByRestore(unfinished.id)))) return removeCopy(pool);
  throw new ExplainedError(
    'a restore needs an empty database, and that of --database-url has tables: create a new database and name it',
  );
}

/**
 * An external database that is in use, or was opened last, must not be removed. An embedded one is restored once more.
 */
async function isCompleteCopy(
  pool: PgPool,
  unfinished: UnfinishedRestore | undefined,
  file: string,
): Promise<boolean> {
  if (!unfinished?.isComplete || unfinished.file !== file || !(await isMigrated(pool))) return false;
  const closed = await readClosed(pool);
  return closed === null || closed === closedByRestore(unfinished.id);
}

async function isClosedBy(pool: PgPool, reason: string): Promise<boolean> {
  return (await isMigrated(pool)) && (await readClosed(pool)) === reason;
}

/** The file of a part, and whether it may be restored: a key that the environment gives needs none. */
export function keptPaths(places: Places): Map<string, string> {
  const { secretKeysFile, eventKeysFile } = places;
  return new Map([
    [SECRET_KEYS_PART, secretKeysFile],
    [EVENT_KEYS_PART, eventKeysFile],
    [EVENT_HEADS_PART, headsFileOf(places).path],
  ]);
}
