import { lstatSync, readdirSync, rmdirSync, rmSync } from 'node:fs';
import { basename, join } from 'node:path';
import type { WorkerContext } from '../../context.js';
import type { DataDirectory } from '../../db/embedded/directory.js';
import { baseOf, keysOf, walOf } from '../../db/embedded/wal-archive.js';
import type { Sql } from '../../db/pool.js';
import { writeFileAtomicallySync } from '../../lib/atomic-file.js';
import { ExplainedError } from '../../lib/explained-error.js';
import type { Instant } from '../../lib/instant.js';
import { startLoop, type Loop } from '../../lib/loop.js';
import { SECRET_KEYS_PART } from '../archive/format.js';
import { isDirectory, keyFilesOf, readKept, type Places } from '../files/kept-files.js';
import { requireTar } from '../../volumes/storage/tar-program.js';
import { makeBaseCopy } from './base-copy.js';
import { BASE_FILE, BASE_NAME, baseCopiesIn, isArchived } from './layout.js';

export interface Keeping {
  directory: DataDirectory;
  root: string;
  places: Places;
  everyMs: number;
  keep: number;
}

const CHECK_EVERY_MS = 10_000;
const LONGEST_BACKOFF_MS = 60_000;

/**
 * Makes base copies, and removes old ones with the log that only they need. A failure is logged, and stops nothing
 * else.
 */
export function keepWalArchive(ctx: WorkerContext, keeping: Keeping): Loop {
  return startLoop((signal) => keepOnce(ctx, keeping, signal), {
    intervalMs: CHECK_EVERY_MS,
    maxBackoffMs: LONGEST_BACKOFF_MS,
    onError(error) {
      ctx.meters.loopFailed('walArchive');
      ctx.log.error({ err: error, archive: keeping.root }, 'the log archive failed');
    },
  });
}

async function keepOnce({ pool, log }: WorkerContext, keeping: Keeping, signal: AbortSignal): Promise<void> {
  const { directory, root, places, everyMs, keep } = keeping;
  if (!isDirectory(root)) {
    throw new ExplainedError(
      `${root} is missing: mount its disk, or remove wal-archive.json from the data directory to begin another archive at the next start`,
    );
  }
  keepKeys(root, places);
  if (isDue(root, everyMs)) {
    requireTar();
    removeUnfinished(root);
    const began = performance.now();
    const { directory: copy } = await makeBaseCopy(directory, root, signal);
    log.info({ copy, ms: Math.round(performance.now() - began) }, 'a base copy was made');
  }
  removeOld(root, keep);
  await requireArchiving(pool);
}

function isDue(root: string, everyMs: number): boolean {
  const newest = baseCopiesIn(root).at(-1);
  // A clock that was set back must not end the copies.
  return !newest || Math.abs(Date.now() - Date.parse(newest.startedAt)) >= everyMs;
}

/**
 * Copies changed key files. The rows of an earlier moment may need a secret key that was dropped since, so secret keys
 * add up. A file of event keys has all that its predecessors verified.
 */
function keepKeys(root: string, places: Places): void {
  for (const file of keyFilesOf(places)) {
    const current = readKept(file)?.toString('utf8');
    if (current === undefined) continue;
    const path = keptKeys(root, file.part);
    const kept = readKept({ part: file.part, path })?.toString('utf8') ?? '';
    const wanted = file.part === SECRET_KEYS_PART ? joinLines(current, kept) : current;
    if (wanted !== kept) writeFileAtomicallySync(path, wanted, { replace: true });
  }
}

/** The copy of a key file. `part`: its name in a backup. */
export function keptKeys(root: string, part: string): string {
  return join(keysOf(root), basename(part));
}

function joinLines(...texts: string[]): string {
  const lines = texts.flatMap((text) => text.split(/[\s,]+/)).filter((line) => line !== '');
  return `${[...new Set(lines)].join('\n')}\n`;
}

const OWN_FILE = /^(?:base\.json|cluster\.tar\.gz)(?:\.[0-9a-f]{12})?$/;

/** Only this process makes base copies, so the others are of killed ones. */
function removeUnfinished(root: string): void {
  const complete = new Set(baseCopiesIn(root).map(({ directory }) => directory));
  for (const name of readdirSync(baseOf(root)).filter((other) => BASE_NAME.test(other))) {
    const directory = join(baseOf(root), name);
    if (isDirectory(directory) && !complete.has(directory)) removeCopy(directory);
  }
}

/** Keeps the newest base copies whose log is archived, and all that are newer. */
export function removeOld(root: string, keep: number): void {
  const copies = baseCopiesIn(root);
  const oldest = copies.filter(({ lastSegment }) => isArchived(root, lastSegment)).at(-keep);
  if (!oldest) return;
  const old = copies.filter(({ firstSegment }) => firstSegment < oldest.firstSegment);
  for (const { directory } of old) removeCopy(directory);
  if (old.length > 0) removeLogBefore(root, oldest.firstSegment);
}

/** The file that makes it a base copy goes first. Files of others stay, and their directory with them. */
function removeCopy(directory: string): void {
  rmSync(join(directory, BASE_FILE), { force: true });
  for (const name of readdirSync(directory).filter((other) => OWN_FILE.test(other)))
    removeFile(join(directory, name));
  try {
    rmdirSync(directory);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOTEMPTY') throw error;
  }
}

/** A segment, its draft, or the note about a base copy. */
const LOG_FILE = /^([0-9A-F]{24})(?:\.[0-9A-F]{8}\.backup)?\.gz(?:\.\d+)?$/;

function removeLogBefore(root: string, first: string): void {
  for (const name of readdirSync(walOf(root))) {
    const segment = LOG_FILE.exec(name)?.[1];
    if (segment !== undefined && segment < first) removeFile(join(walOf(root), name));
  }
}

function removeFile(path: string): void {
  if (lstatSync(path, { throwIfNoEntry: false })?.isFile()) rmSync(path, { force: true });
}

async function requireArchiving(sql: Sql): Promise<void> {
  const { rows } = await sql.query<{ segment: string; since: Instant }>(
    `select last_failed_wal as segment, last_failed_time as since from pg_stat_archiver
     where last_failed_time > coalesce(last_archived_time, '-infinity')`,
  );
  if (rows.length === 0) return;
  throw new ExplainedError(
    `PostgreSQL cannot archive ${rows[0]!.segment}: postgres.log in the data directory has the cause. Its log grows until it can`,
  );
}
