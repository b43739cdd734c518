import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { lstat, readdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { WorkerContext } from '../context.js';
import { ADVISORY_LOCKS, tryAdvisory } from '../db/advisory-locks.js';
import { noteBackup, readBackupAge } from '../db/instance-queries.js';
import type { Sql } from '../db/pool.js';
import { inTransaction } from '../db/transaction.js';
import { ExplainedError } from '../lib/explained-error.js';
import { startLoop, type Loop } from '../lib/loop.js';
import { encryptionFor } from './archive/encryption.js';
import { isDirectory, type Places } from './files/kept-files.js';
import { makeBackup, type Backup } from './make.js';

export interface Schedule {
  directory: string;
  keep: number;
  encryptTo: readonly string[];
  instanceId: string;
  places: Places;
}

const CHECK_EVERY_MS = 60_000;
const LONGEST_BACKOFF_MS = 15 * 60_000;

/**
 * Makes a backup whenever the latest one is older than the interval. Throws ExplainedError for a wrong directory or
 * key.
 */
export async function startScheduledBackups(ctx: WorkerContext, schedule: Schedule): Promise<Loop> {
  if (!isDirectory(schedule.directory)) {
    throw new ExplainedError(
      `the directory ${schedule.directory} of --backup-dir does not exist: create it, or mount its disk`,
    );
  }
  await encryptionFor(schedule);
  return startLoop((signal) => backUpWhenDue(ctx, schedule, signal), {
    intervalMs: Math.min(CHECK_EVERY_MS, ctx.settings.backupEveryMs),
    maxBackoffMs: LONGEST_BACKOFF_MS,
    onError(error) {
      ctx.meters.loopFailed('backup');
      ctx.log.error({ err: error }, 'a scheduled backup failed');
    },
  });
}

async function backUpWhenDue(ctx: WorkerContext, schedule: Schedule, signal: AbortSignal): Promise<void> {
  if (!(await isDue(ctx.pool, ctx.settings.backupEveryMs))) return;
  await inTransaction(
    ctx.pool,
    async (tx) => {
      const isFree = await tryAdvisory(tx, ADVISORY_LOCKS.scheduledBackup);
      // Another process may have made one since the first look.
      if (!isFree || !(await isDue(tx, ctx.settings.backupEveryMs))) return;
      await backUp(ctx, schedule, signal);
    },
    { unhurried: true },
  );
}

async function isDue(sql: Sql, everyMs: number): Promise<boolean> {
  const { secs, made } = await readBackupAge(sql);
  return !made || secs * 1_000 >= everyMs;
}

async function backUp(ctx: WorkerContext, schedule: Schedule, signal: AbortSignal): Promise<void> {
  const began = performance.now();
  const encrypt = await encryptionFor(schedule);
  const time = new Date().toISOString().replace(/[-:.]/g, '');
  const name = `${prefixOf(schedule)}${time}.tar.gz${encrypt ? '.age' : ''}`;
  const file = join(schedule.directory, name);
  await removeDrafts(schedule);
  const made = await makeBackup(ctx.pool, {
    places: schedule.places,
    file,
    encrypt,
    signal,
    withVolumes: true,
    withKeys: true,
  });
  await requireReadable(file, made);
  await noteBackup(ctx.pool, performance.now() - began);
  const removed = await removeOld(schedule, name);
  const { warnings } = made.manifest;
  const fields = { file, bytes: made.bytes, ms: Math.round(performance.now() - began), removed, warnings };
  ctx.log[warnings.length > 0 ? 'warn' : 'info'](fields, 'a scheduled backup was made');
}

/** The retention relies on the new file: it must be on the disk as it was written. */
async function requireReadable(file: string, { sha256 }: Backup): Promise<void> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file)) hash.update(chunk as Buffer);
  if (hash.digest('hex') === sha256) return;
  throw new ExplainedError(`${file} does not have the content that was written: check its disk`);
}

function prefixOf({ instanceId }: Schedule): string {
  return `sandkeep-scheduled-${instanceId}-`;
}

const REST = /^\d{8}T\d{9}Z\.tar\.gz(?:\.age)?$/;
const DRAFT = /^\d{8}T\d{9}Z\.tar\.gz(?:\.age)?\.[0-9a-f]{12}$/;

async function ownFiles(schedule: Schedule, form: RegExp): Promise<string[]> {
  const prefix = prefixOf(schedule);
  const names = await readdir(schedule.directory);
  return names.filter((name) => name.startsWith(prefix) && form.test(name.slice(prefix.length))).toSorted();
}

/** The holder of the lock is alone: other drafts are of killed processes. */
async function removeDrafts(schedule: Schedule): Promise<void> {
  for (const name of await ownFiles(schedule, DRAFT)) await removeFile(join(schedule.directory, name));
}

/**
 * Keeps the new file, and the newest others by their names. Touches only files with a name that this schedule gives.
 */
async function removeOld(schedule: Schedule, newest: string): Promise<number> {
  const others = (await ownFiles(schedule, REST)).filter((name) => name !== newest);
  const old = others.slice(0, Math.max(0, others.length - (schedule.keep - 1)));
  for (const name of old) await removeFile(join(schedule.directory, name));
  return old.length;
}

async function removeFile(path: string): Promise<void> {
  if ((await lstat(path)).isFile()) await rm(path, { force: true });
}
