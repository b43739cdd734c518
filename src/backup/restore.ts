import { closeSync, fsyncSync, openSync, writeSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setClosed } from '../db/instance-queries.js';
import { migrate, requireKnownMigrations } from '../db/migrate.js';
import { unmark } from '../db/unfinished-restore.js';
import { makeDirectories, syncDirectorySync } from '../lib/directories.js';
import { ENGINE_DIRECTORIES } from '../engines/register.js';
import { ExplainedError } from '../lib/explained-error.js';
import {
  engineRecordPart,
  tablePart,
  volumePart,
  type Header,
  type Manifest,
  type Part,
} from './archive/format.js';
import { verifyArchive, withArchive, type OpenOptions } from './archive/open.js';
import { DamagedArchive, type ArchiveReader } from './archive/reader.js';
import { loadDatabase } from './database/load.js';
import { keyFilesOf, type Places } from './files/kept-files.js';
import { requireTar, syncFileSystem, unpackTree } from '../volumes/storage/tar-program.js';
import { closedByRestore, keptPaths, openTarget, type Target } from './target.js';

export interface RestoreOptions {
  file: string;
  places: Places;
  databaseUrl: string | undefined;
  unlock?: OpenOptions['unlock'];
  /** `pass`: 1 reads the checksums, 2 loads. */
  onProgress?: (pass: 1 | 2, bytes: number) => void;
  onMigration?: (name: string) => void;
}

export interface Restored {
  header: Header;
  manifest: Manifest;
}

/**
 * Restores an archive into an empty place. Everything in the archive is read and compared with its checksums before
 * anything is written. Until the end a mark keeps services from the directory, and its reason from the database; `work`
 * runs before it, on the complete database.
 */
export async function restoreBackup<T>(
  options: RestoreOptions,
  work: (target: Target, restored: Restored) => Promise<T>,
): Promise<T> {
  const { file, places, databaseUrl, unlock, onProgress = () => undefined } = options;
  const { header, manifest } = await verifyArchive(file, {
    unlock,
    onProgress: (bytes) => onProgress(1, bytes),
  });
  requireUsable(file, header);
  const trees = manifest.parts.filter(({ name, removed }) => name.endsWith('.tar') && !removed);
  if (trees.length > 0) requireTar();
  const target = await openTarget({
    places,
    databaseUrl,
    file,
    keyFiles: hasKeys(header) ? keyFilesOf(places).map(({ path }) => path) : [],
    orgs: header.volumes.map(({ orgId }) => orgId),
  });
  try {
    if (!target.isComplete) {
      await withArchive(file, { unlock, onProgress: (bytes) => onProgress(2, bytes) }, (reader) =>
        load(reader, { target, places, header, manifest }),
      );
      await migrate(target.database.address, options.onMigration, closedByRestore(target.id));
    }
    const result = await work(target, { header, manifest });
    target.markComplete();
    await setClosed(target.pool, null);
    unmark(places.dataDir);
    return result;
  } finally {
    await target.close();
  }
}

function requireUsable(file: string, { product, database }: Header): void {
  try {
    requireKnownMigrations(database.migrations);
  } catch (cause) {
    if (!(cause instanceof ExplainedError)) throw cause;
    throw new ExplainedError(
      `${file} cannot be used: it is of Sandkeep ${product}, whose schema this release does not know: restore it with that release or a later one`,
      { cause },
    );
  }
}

function hasKeys({ leftOut }: Header): boolean {
  return !leftOut.some((text) => text.includes('--without-keys'));
}

interface Loading {
  target: Target;
  places: Places;
  header: Header;
  manifest: Manifest;
}

/** In the order of the archive: small files, tables, trees. */
async function load(reader: ArchiveReader, loading: Loading): Promise<void> {
  const { target, places, header, manifest } = loading;
  await reader.readHeader();
  const parts = new Map(manifest.parts.map((part) => [part.name, part]));
  const paths = keptPaths(places);
  for (const { name } of manifest.parts) {
    const path = paths.get(name);
    if (path !== undefined) await writeKept(path, reader.readPart(name));
  }
  await loadDatabase(target.pool, {
    description: header.database,
    closed: closedByRestore(target.id),
    rowsOf: ({ name }) => reader.readPart(tablePart(name)),
    check(table, rows) {
      const wanted = parts.get(tablePart(table))?.rows;
      if (rows !== wanted)
        throw new DamagedArchive(
          `its table ${table} has ${rows} rows, and its manifest says ${wanted ?? 'none'}`,
        );
    },
  });
  for (const directory of ENGINE_DIRECTORIES)
    await restoreTree(reader, parts.get(engineRecordPart(directory)), places.dataDir, directory);
  for (const { orgId, volumeId } of header.volumes) {
    const part = parts.get(volumePart(orgId, volumeId));
    await restoreTree(reader, part, join(places.volumesDir, orgId, volumeId), 'data');
    if (part && !part.removed)
      await mkdir(join(places.volumesDir, orgId, volumeId, 'incoming'), { mode: 0o700 });
  }
  await reader.readManifest();
  await syncFileSystem(places.dataDir);
  if (header.volumes.length > 0) await syncFileSystem(places.volumesDir);
}

export async function writeKept(
  path: string,
  content: AsyncIterable<Buffer> | Iterable<Buffer>,
): Promise<void> {
  makeDirectories(dirname(path), 0o700);
  const file = openSync(path, 'wx', 0o600);
  try {
    for await (const chunk of content) writeSync(file, chunk);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
  syncDirectorySync(dirname(path));
}

async function restoreTree(
  reader: ArchiveReader,
  part: Part | undefined,
  directory: string,
  name: string,
): Promise<void> {
  if (!part) return;
  const content = reader.readPart(part.name);
  if (part.removed) {
    for await (const _ of content);
    return;
  }
  makeDirectories(directory, 0o700);
  await unpackTree(directory, name, content);
}
