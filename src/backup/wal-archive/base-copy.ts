import { mkdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type pg from 'pg';
import type { DataDirectory } from '../../db/embedded/directory.js';
import { baseOf } from '../../db/embedded/wal-archive.js';
import { connectAlone } from '../../db/pool.js';
import { FileDraft, writeFileAtomically } from '../../lib/atomic-file.js';
import { syncDirectory } from '../../lib/directories.js';
import { now, type Instant } from '../../lib/instant.js';
import { VERSION } from '../../lib/version.js';
import { FileTarget } from '../archive/file-target.js';
import { packTree } from '../../volumes/storage/tar-program.js';
import { BASE_FILE, CLUSTER_FILE, type BaseCopy, type StoredCopy } from './layout.js';

/** Files that a base copy must not have, or that PostgreSQL makes anew; its manual lists them. */
const LEFT_OUT = [
  'postmaster.pid',
  'postmaster.opts',
  'pg_wal/*',
  'pg_dynshmem/*',
  'pg_notify/*',
  'pg_replslot/*',
  'pg_serial/*',
  'pg_snapshots/*',
  'pg_stat_tmp/*',
  'pg_subtrans/*',
  'base/pgsql_tmp',
];

/** Copies the cluster of a running server into an archive. It is complete once the archive has its last segment. */
export async function makeBaseCopy(
  directory: DataDirectory,
  root: string,
  signal?: AbortSignal,
): Promise<StoredCopy> {
  const startedAt = now();
  const copy = join(baseOf(root), `${startedAt.replace(/[-:.]/g, '').slice(0, 18)}Z`);
  await mkdir(copy, { mode: 0o700 });
  // The copy is void when this session ends before its stop.
  const client = await connectAlone({ socket: directory.run });
  try {
    await client.query('set statement_timeout = 0');
    await client.query("select pg_backup_start('sandkeep', true)");
    await copyCluster(directory, join(copy, CLUSTER_FILE), signal);
    const base: BaseCopy = { format: 1, product: VERSION, startedAt, ...(await stopBackup(client)) };
    await writeFileAtomically(join(copy, BASE_FILE), JSON.stringify(base), { replace: false });
    await syncDirectory(dirname(copy));
    return { ...base, directory: copy };
  } finally {
    await client.end();
  }
}

async function copyCluster({ root }: DataDirectory, file: string, signal?: AbortSignal): Promise<void> {
  const { content, warnings } = packTree(root, 'postgres', LEFT_OUT);
  const draft = await FileDraft.open(file);
  try {
    await pipeline(content, createGzip({ level: 1 }), new FileTarget(draft.handle), { signal });
    // Files may change or disappear meanwhile: a restore takes these changes from the log.
    await warnings();
    await draft.publish({ replace: false });
  } catch (error) {
    await draft.discard();
    throw error;
  }
}

async function stopBackup(
  client: pg.Client,
): Promise<Pick<BaseCopy, 'endedAt' | 'firstSegment' | 'lastSegment' | 'label'>> {
  const { rows } = await client.query<{ label: string; last: string; ended: Instant }>(
    `select labelfile as label, pg_walfile_name(lsn) as last, clock_timestamp() as ended
     from pg_backup_stop(wait_for_archive => false)`,
  );
  const { label, last, ended } = rows[0]!;
  const first = /^START WAL LOCATION: \S+ \(file ([0-9A-F]{24})\)$/m.exec(label)?.[1];
  if (first === undefined) throw new Error(`pg_backup_stop returned an unexpected label: ${label}`);
  return { endedAt: ended, firstSegment: first, lastSegment: last, label };
}
