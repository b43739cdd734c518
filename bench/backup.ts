import { mkdtempSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { makeBackup } from '../src/backup/make.js';
import { restoreBackup } from '../src/backup/restore.js';
import { verifyArchive } from '../src/backup/archive/open.js';
import { verifyRestored } from '../src/backup/verify-restored.js';
import { dataSetOf } from './speed/data-set.js';
import { ensureLoaded } from './speed/load.js';
import { openStore } from './speed/store.js';

const MIB = 1024 ** 2;

/** The times of a backup, of its checksums, and of a restore with its verification, for a store of this scale. */
export async function backup(scale: number): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const file = join(directory, 'backup.tar.gz');
  const placesIn = (dataDir: string, keys: string) => ({
    dataDir,
    volumesDir: join(dataDir, 'volumes'),
    secretKeysFile: join(keys, 'secret-keys'),
    eventKeysFile: join(keys, 'event-keys'),
  });
  try {
    const store = await openStore(directory);
    await ensureLoaded(store, dataSetOf(scale), 'the store');
    const { rows } = await store.pool.query<{ bytes: number }>(
      'select pg_database_size(current_database())::float8 as bytes',
    );
    const places = placesIn(join(directory, 'db'), directory);
    const made = await timed('backup', () =>
      makeBackup(store.pool, { places, file, withVolumes: false, withKeys: false }),
    );
    await store.close();
    await timed('checksums', () => verifyArchive(file));
    const target = placesIn(join(directory, 'restored'), directory);
    const count = made.manifest.parts.reduce((sum, part) => sum + (part.rows ?? 0), 0);
    await timed('restore', () =>
      restoreBackup({ file, places: target, databaseUrl: undefined }, async ({ pool }) => {
        const { faults } = await timed('of it, the verification', () => verifyRestored(pool, target));
        if (faults.length > 0) throw new Error(faults.join('; '));
      }),
    );
    const sizes = [rows[0]!.bytes, statSync(file).size].map((bytes) => (bytes / MIB).toFixed(1));
    console.log(`${count} rows; database ${sizes[0]} MiB, backup ${sizes[1]} MiB`);
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
}

async function timed<T>(what: string, work: () => Promise<T>): Promise<T> {
  const begun = performance.now();
  const result = await work();
  console.log(`${what}: ${((performance.now() - begun) / 1000).toFixed(1)} s`);
  return result;
}
