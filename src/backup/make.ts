import { join } from 'node:path';
import type { Pool, Sql } from '../db/pool.js';
import { FileDraft } from '../lib/atomic-file.js';
import { ENGINE_DIRECTORIES } from '../engines/register.js';
import { ExplainedError } from '../lib/explained-error.js';
import { now } from '../lib/instant.js';
import { VERSION } from '../lib/version.js';
import type { Encrypt } from './archive/encryption.js';
import {
  FORMAT,
  engineRecordPart,
  tablePart,
  volumePart,
  type Header,
  type Manifest,
} from './archive/format.js';
import { FileTarget } from './archive/file-target.js';
import { ArchiveWriter } from './archive/writer.js';
import { copyRows, inSnapshot, type Snapshot } from './database/snapshot.js';
import {
  headsFileOf,
  isDirectory,
  keyFilesOf,
  readKept,
  type KeptFile,
  type Places,
} from './files/kept-files.js';
import { packTree, requireTar } from '../volumes/storage/tar-program.js';
import { VolumeStore } from '../volumes/storage/store.js';

export interface BackupOptions {
  places: Places;
  /** The path of the archive, which must not exist. */
  file: string;
  withVolumes: boolean;
  withKeys: boolean;
  /** Undefined: the archive is not encrypted. */
  encrypt?: Encrypt | undefined;
  onPart?: (name: string) => void;
  /** Ends the backup, which then fails. */
  signal?: AbortSignal | undefined;
}

export interface Backup {
  header: Header;
  manifest: Manifest;
  bytes: number;
  sha256: string;
}

interface KeptContent {
  file: KeptFile;
  content: Buffer;
}

const KEY_ATTEMPTS = 5;
/** Always outside: the operator keeps them elsewhere. */
const NEVER_IN = [
  'the disks of sandboxes, which are in the engine',
  'the price book, the options and the environment of the service',
];

/** A rotation replaced the key files between the two readings. */
class KeysChanged extends Error {}

/** Writes one archive while the service works. The file appears when it is complete and on its disk. */
export async function makeBackup(pool: Pool, options: BackupOptions): Promise<Backup> {
  if (options.withVolumes) requireTar();
  const draft = await FileDraft.open(options.file);
  try {
    const made = await writeArchive(pool, options, draft);
    await draft.publish({ replace: false }).catch((cause: NodeJS.ErrnoException) => {
      if (cause.code !== 'EEXIST') throw cause;
      throw new ExplainedError(`${options.file} exists: choose another name`, { cause });
    });
    return made;
  } catch (error) {
    await draft.discard();
    throw error;
  }
}

async function writeArchive(pool: Pool, options: BackupOptions, draft: FileDraft): Promise<Backup> {
  const target = new FileTarget(draft.handle);
  const writer = new ArchiveWriter(target, options);
  try {
    const warnings: string[] = [];
    const header = await writeDatabase(pool, writer, options, warnings);
    await writeTrees(writer, header, options, warnings);
    const manifest = await writer.finish(warnings);
    return { header, manifest, bytes: target.bytes, sha256: target.sha256() };
  } catch (error) {
    await writer.abort();
    throw error;
  }
}

/**
 * The heads are read before the snapshot, whose log is then at least as long. The key files must be the same before and
 * after the snapshot begins, so that they open its secrets and verify its log.
 */
async function writeDatabase(
  pool: Pool,
  writer: ArchiveWriter,
  options: BackupOptions,
  warnings: string[],
): Promise<Header> {
  for (let attempt = 1; ; attempt += 1) {
    const heads = contentsOf([headsFileOf(options.places)]);
    const keys = readKeys(options);
    try {
      return await inSnapshot(pool, async (snapshot) => {
        if (!haveEqualContent(keys, readKeys(options))) throw new KeysChanged();
        const { tx, description, foreign } = snapshot;
        warnings.push(
          ...foreign.map((name) => `the table ${name} is not one of Sandkeep, and is not in the backup`),
        );
        const header = await describe(snapshot, options);
        await writer.writeHeader(header);
        for (const { file, content } of [...keys, ...heads]) await writer.writePart(file.part, [content]);
        for (const table of description.tables) {
          options.onPart?.(table.name);
          const rows = copyRows(tx, table);
          const part = await writer.writePart(tablePart(table.name), rows.content);
          part.rows = rows.count();
        }
        return header;
      });
    } catch (error) {
      if (!(error instanceof KeysChanged) || attempt === KEY_ATTEMPTS) throw error;
    }
  }
}

async function describe({ tx, description }: Snapshot, options: BackupOptions): Promise<Header> {
  return {
    format: FORMAT,
    product: VERSION,
    takenAt: now(),
    database: description,
    leftOut: leftOut(options),
    volumes: options.withVolumes ? await volumesIn(tx) : [],
  };
}

function leftOut({ places, withKeys, withVolumes }: BackupOptions): string[] {
  return [
    ...(withVolumes ? [] : ['the data of volumes (--without-volumes)']),
    ...(withKeys ? [] : ['the keys of secrets and of the event log (--without-keys)']),
    ...(withKeys && places.secretKeys !== undefined
      ? ['the keys of secrets, which the environment gives']
      : []),
    ...(withKeys && places.eventKeys !== undefined
      ? ['the keys of the event log, which the environment gives']
      : []),
    ...NEVER_IN,
  ];
}

async function volumesIn(sql: Sql): Promise<Header['volumes']> {
  const { rows } = await sql.query<{ orgId: string; volumeId: string }>(
    `select org_id as "orgId", id as "volumeId" from volumes where status <> 'copying' and removed_at is null order by 1, 2`,
  );
  return rows;
}

/** After the database: a long copy of volumes keeps no snapshot. */
async function writeTrees(
  writer: ArchiveWriter,
  header: Header,
  { places, onPart }: BackupOptions,
  warnings: string[],
): Promise<void> {
  for (const directory of ENGINE_DIRECTORIES) {
    if (!isDirectory(join(places.dataDir, directory))) continue;
    const part = engineRecordPart(directory);
    const { warnings: found } = await writeTree(writer, part, places.dataDir, directory);
    warnings.push(...found);
  }
  const volumes = new VolumeStore(places.volumesDir);
  for (const { orgId, volumeId } of header.volumes) {
    const held = await volumes.holdData(orgId, volumeId).catch((cause: unknown) => {
      throw new ExplainedError(
        `cannot read the volume ${volumeId} (${(cause as Error).message}): run the command as the user of the service, or leave volumes out with --without-volumes`,
        { cause },
      );
    });
    // A volume has no data before its first use.
    if (!held) continue;
    try {
      await writeVolume(writer, held.directory, { orgId, volumeId, onPart, warnings });
    } finally {
      await held.close();
    }
  }
  await volumes.close();
}

async function writeVolume(
  writer: ArchiveWriter,
  directory: string,
  {
    orgId,
    volumeId,
    onPart,
    warnings,
  }: { orgId: string; volumeId: string; onPart: BackupOptions['onPart']; warnings: string[] },
): Promise<void> {
  onPart?.(`volume ${volumeId}`);
  const { part, warnings: found } = await writeTree(writer, volumePart(orgId, volumeId), directory, 'data');
  if (isDirectory(join(directory, 'data')))
    warnings.push(...found.map((line) => `volume ${volumeId}: ${line}`));
  else {
    part.removed = true;
    warnings.push(`volume ${volumeId} was deleted meanwhile: its data is not in the backup`);
  }
}

async function writeTree(writer: ArchiveWriter, name: string, directory: string, tree: string) {
  const { content, warnings } = packTree(directory, tree);
  const part = await writer.writePart(name, content);
  const found = await warnings().catch((error: unknown) => {
    if (isDirectory(join(directory, tree))) throw error;
    return [];
  });
  return { part, warnings: found };
}

/** Throws ExplainedError when a key file is missing: a backup without it would not be complete. */
function readKeys({ places, withKeys }: BackupOptions): KeptContent[] {
  if (!withKeys) return [];
  const files = keyFilesOf(places);
  const found = contentsOf(files);
  const missing = files.find((file) => !found.some((kept) => kept.file === file));
  if (!missing) return found;
  throw new ExplainedError(
    `${missing.path} is missing, and a backup needs the keys: run the command on the machine of the service with its options, or leave the keys out with --without-keys`,
  );
}

function contentsOf(files: readonly KeptFile[]): KeptContent[] {
  return files.flatMap((file) => {
    const content = readKept(file);
    return content === undefined ? [] : [{ file, content }];
  });
}

function haveEqualContent(before: readonly KeptContent[], after: readonly KeptContent[]): boolean {
  return before.every(({ content }, index) => after[index]?.content.equals(content));
}
