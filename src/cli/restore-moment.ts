import type { EngineOptions } from '../backup/compare-engine.js';
import type { Places } from '../backup/files/kept-files.js';
import { ExplainedError } from '../lib/explained-error.js';
import { shortInstant, type Instant } from '../lib/instant.js';
import { withBar } from './backup-progress.js';
import { print } from './command.js';
import { engineText, verificationJson, verificationText } from './restored-text.js';

type MomentOptions = Places &
  EngineOptions & { json?: true; databaseUrl: string | undefined; toTime?: Instant };

const NOT_IN_IT = [
  'the data of volumes: copy it, or restore it from a backup',
  'the heads of the event log, which may be longer than this moment',
  'the price book, options and environment of the service; the disks and records of sandboxes in the engine',
];

/** Restores the embedded database from the archive of its log. */
export async function restoreMoment(path: string, options: MomentOptions): Promise<void> {
  if (options.databaseUrl !== undefined) {
    throw new ExplainedError(
      'an archived log is restored into the embedded database only: leave out --database-url, and move the database afterwards with "sandkeep database move"',
    );
  }
  const { restoreToTime } = await import('../backup/wal-archive/restore.js');
  const { verifyRestored } = await import('../backup/verify-restored.js');
  const { compareEngine } = await import('../backup/compare-engine.js');
  const { baseCopy, lastChange, verification, engine } = await withBar(undefined, (bar) =>
    restoreToTime(
      {
        path,
        time: options.toTime,
        places: options,
        onStep: (name) => bar.name(name),
        onMigration: (name) => process.stderr.write(`sandkeep: applied migration ${name}\n`),
      },
      async ({ pool }, restored) => ({
        ...restored,
        verification: await verifyRestored(pool, options),
        engine: await compareEngine(pool, options),
      }),
    ),
  );
  const moment = options.toTime ?? lastChange;
  print(
    options,
    {
      moment: shortInstant(moment),
      last_change: shortInstant(lastChange),
      base_copy: shortInstant(baseCopy),
      ...verificationJson(verification, engine),
      left_out: NOT_IN_IT,
    },
    [
      `Restored the database of ${shortInstant(moment)}, from the base copy of ${shortInstant(baseCopy)}. Its last change is of ${shortInstant(lastChange)}.`,
      ...verificationText(verification, 'the schema'),
      ...engineText(engine),
      'NOT restored:',
      ...NOT_IN_IT.map((part) => `  - ${part}`),
    ].join('\n'),
  );
  if (verification.faults.length > 0) process.exitCode = 1;
}
