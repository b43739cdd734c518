import type { ServiceContext } from '../context.js';
import { findDataDirectory, type DataDirectory } from '../db/embedded/directory.js';
import { findWalArchive } from '../db/embedded/wal-archive.js';
import type { ServiceOptions, Startup } from './startup.js';

const HOUR_MS = 3_600_000;

/** The module is loaded for a schedule only. Throws ExplainedError for a wrong directory or key. */
export async function startBackups(
  ctx: ServiceContext,
  instanceId: string,
  { options, resources }: Startup,
): Promise<void> {
  if (options.backupDir === undefined) return;
  const { startScheduledBackups } = await import('../backup/schedule.js');
  const backups = await startScheduledBackups(ctx, {
    directory: options.backupDir,
    keep: options.backupKeep,
    encryptTo: options.backupEncryptTo,
    instanceId,
    places: options,
  });
  resources.add('the scheduled backups', () => backups.stop());
}

export async function startWalArchive(ctx: ServiceContext, { options, resources }: Startup): Promise<void> {
  const directory = archivedDirectory(options);
  if (!directory) return;
  const { keepWalArchive } = await import('../backup/wal-archive/keep.js');
  const archive = keepWalArchive(ctx, {
    directory,
    root: findWalArchive(directory)!,
    places: options,
    everyMs: options.backupEveryHours * HOUR_MS,
    keep: options.backupKeep,
  });
  resources.add('the log archive', () => archive.stop());
}

export function archivedDirectory({ walArchiveDir, dataDir }: ServiceOptions): DataDirectory | undefined {
  return walArchiveDir === undefined ? undefined : findDataDirectory(dataDir);
}
