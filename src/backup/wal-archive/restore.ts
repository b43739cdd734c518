import { createReadStream, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { copyFile } from 'node:fs/promises';
import { basename, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGunzip } from 'node:zlib';
import type { DataDirectory } from '../../db/embedded/directory.js';
import { findBinaries } from '../../db/embedded/binaries.js';
import { chooseIdentity, giveTo } from '../../db/embedded/identity.js';
import { restoreCommand } from '../../db/embedded/wal-archive.js';
import { migrate } from '../../db/migrate.js';
import { unmark } from '../../db/unfinished-restore.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { parseInstant, shortInstant, type Instant } from '../../lib/instant.js';
import { keyFilesOf, readKept, type Places } from '../files/kept-files.js';
import { requireTar, unpackTree } from '../../volumes/storage/tar-program.js';
import { writeKept } from '../restore.js';
import { openTarget, STAGED_WAL, type Target } from '../target.js';
import { chooseReplay, missingSegment, type Replay } from './choose.js';
import { keptKeys } from './keep.js';
import { CLUSTER_FILE, segmentFile } from './layout.js';

export interface TimeRestoreOptions {
  /** The archive, or the directory that has only this one. */
  path: string;
  /** Undefined: the end of the archived log. */
  time: Instant | undefined;
  places: Places;
  onStep?: (name: string) => void;
  onMigration?: (name: string) => void;
}

export interface RestoredMoment {
  root: string;
  baseCopy: Instant;
  /** The last change that is in the database; that of the base copy without a later one. */
  lastChange: Instant;
}

/**
 * Restores the embedded database of an archive as it was at a moment, into an empty place. As for a backup, a mark
 * keeps services away until the end of `work`. The event heads are left out: the log of the moment is shorter than
 * theirs.
 */
export async function restoreToTime<T>(
  options: TimeRestoreOptions,
  work: (target: Target, restored: RestoredMoment) => Promise<T>,
): Promise<T> {
  const { path, time, places, onStep = () => undefined } = options;
  requireTar();
  const replay = chooseReplay(path, time);
  const keys = archivedKeys(replay.root, places);
  const target = await openTarget({
    places,
    databaseUrl: undefined,
    file: path,
    orgs: [],
    keyFiles: keys.map(({ to }) => to),
    prepare: async (directory) => {
      onStep(`unpacking the base copy of ${shortInstant(replay.base.startedAt)}`);
      await unpackCluster(directory, replay);
      for (const { to, content } of keys) await writeKept(to, [content]);
      onStep(`copying ${replay.segments.length} segments of the log`);
      await stageLog(directory, replay);
      onStep('replaying the log');
      return settingsOf(directory, time);
    },
  }).catch((error: unknown) => {
    throw explainRecovery(error, replay, options);
  });
  try {
    rmSync(join(places.dataDir, STAGED_WAL), { recursive: true });
    const lastChange = (await lastReplayed(target)) ?? replay.base.endedAt;
    await migrate(target.database.address, options.onMigration);
    const restored = { root: replay.root, baseCopy: replay.base.endedAt, lastChange };
    const result = await work(target, restored);
    unmark(places.dataDir);
    return result;
  } finally {
    await target.close();
  }
}

interface ArchivedKeys {
  to: string;
  content: Buffer;
}

/** A file that the archive does not have may be in the place of the restore. */
function archivedKeys(root: string, places: Places): ArchivedKeys[] {
  return keyFilesOf(places).flatMap(({ part, path }) => {
    const content = readKept({ part, path: keptKeys(root, part) });
    return content === undefined ? [] : [{ to: path, content }];
  });
}

async function unpackCluster({ root, cluster }: DataDirectory, { base }: Replay): Promise<void> {
  const file = join(base.directory, CLUSTER_FILE);
  const content = createGunzip();
  // An error of the file ends the reader of the content, with the same error.
  pipeline(createReadStream(file), content).catch(() => undefined);
  try {
    await unpackTree(root, basename(cluster), content);
  } catch (cause) {
    throw new ExplainedError(`the base copy ${file} is damaged: ${(cause as Error).message}`, { cause });
  }
  // A changed archive could bring links of these names, which must not be followed.
  writeFileSync(join(cluster, 'backup_label'), base.label, { mode: 0o600, flag: 'wx' });
  writeFileSync(join(cluster, 'recovery.signal'), '', { mode: 0o600, flag: 'wx' });
}

/** PostgreSQL may run as a user that cannot read the archive. */
async function stageLog(directory: DataDirectory, { root, segments }: Replay): Promise<void> {
  const staged = join(directory.root, STAGED_WAL);
  mkdirSync(staged, { mode: 0o700 });
  for (const segment of segments) {
    const file = segmentFile(root, segment);
    await copyFile(file, join(staged, basename(file)));
  }
  giveTo(chooseIdentity(findBinaries(), directory.root).owner, staged);
}

function settingsOf({ root }: DataDirectory, time: Instant | undefined): Record<string, string> {
  return {
    restore_command: restoreCommand(join(root, STAGED_WAL)),
    recovery_target_timeline: 'current',
    recovery_target_action: 'promote',
    hot_standby: 'off',
    // The abbreviation Z is not known yet when PostgreSQL reads its settings.
    ...(time === undefined ? {} : { recovery_target_time: `${time.slice(0, -1)}+00` }),
  };
}

async function lastReplayed({ pool }: Target): Promise<Instant | null> {
  const { rows } = await pool.query<{ at: Instant | null }>('select pg_last_xact_replay_timestamp() as at');
  return rows[0]!.at;
}

/** The recovery ends the server when it cannot reach the moment: its log has the reason. */
function explainRecovery(
  error: unknown,
  { root, missing }: Replay,
  { time, places }: TimeRestoreOptions,
): unknown {
  if (!(error instanceof ExplainedError && error.message.startsWith('PostgreSQL ended'))) return error;
  const log = readKept({ part: '', path: join(places.dataDir, 'postgres.log') })?.toString('utf8') ?? '';
  const damaged = /could not restore file "([0-9A-F]{24})" from archive/.exec(log)?.[1];
  if (damaged !== undefined) {
    return new ExplainedError(
      `the log segment ${damaged} in ${root} is damaged: put a good copy in its place, or choose a moment before it with --to-time`,
      { cause: error },
    );
  }
  if (time === undefined || !log.includes('recovery ended before configured recovery target was reached'))
    return error;
  if (missing !== undefined) return missingSegment(root, missing);
  const end = parseInstant(
    /last completed transaction was at log time (\S+ \S+?)\+00$/m.exec(log)?.[1]?.concat('Z') ?? '',
  );
  return new ExplainedError(
    `the archived log ends ${end === undefined ? '' : `at ${shortInstant(end)}, `}before ${shortInstant(time)}: choose an earlier moment, or leave out --to-time for the latest`,
    { cause: error },
  );
}
