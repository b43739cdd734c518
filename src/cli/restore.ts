import type { Command } from 'commander';
import { statSync } from 'node:fs';
import type { Config } from '../config/options.js';
import { ADDRESS_OPTIONS } from '../engines/register.js';
import { shortInstant, type Instant } from '../lib/instant.js';
import { contentText, leftOutText, rowsOf, withUnlock } from './backup.js';
import { withBar } from './backup-progress.js';
import { databaseCommand, print, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';
import { momentOption } from './options.js';
import { restoreMoment } from './restore-moment.js';
import { engineText, verificationJson, verificationText } from './restored-text.js';

const NAMES = ['volumesDir', 'secretKeys', 'secretKeysFile', ...ADDRESS_OPTIONS] as const;

interface RestoreCommandOptions extends CommonOptions, Pick<Config, (typeof NAMES)[number]> {
  identityFile?: string;
  passphraseFile?: string;
  toTime?: Instant;
}

export function restoreCommand(): Command {
  return withUnlock(withConfig(databaseCommand('restore'), NAMES))
    .description(
      'restore a backup, or a moment of an archived log, into an empty data directory and an empty database, and verify it',
    )
    .argument('<file>', 'the backup, or the directory of the archived log')
    .addOption(momentOption())
    .action(async (file: string, options: RestoreCommandOptions) => {
      if (options.toTime !== undefined || isDirectory(file)) return restoreMoment(file, options);
      const { unlockFor } = await import('../backup/archive/encryption.js');
      const { sizeOf } = await import('../backup/archive/open.js');
      const { restoreBackup } = await import('../backup/restore.js');
      const { verifyRestored } = await import('../backup/verify-restored.js');
      const { compareEngine } = await import('../backup/compare-engine.js');
      const unlock = await unlockFor(options);
      const passes = { 1: 'reading the checksums', 2: 'restoring' };
      const result = await withBar(sizeOf(file), (bar) =>
        restoreBackup(
          {
            file,
            places: options,
            databaseUrl: options.databaseUrl,
            unlock,
            onProgress(pass, bytes) {
              bar.name(passes[pass]);
              bar.at(bytes);
            },
            onMigration: (name) => process.stderr.write(`sandkeep: applied migration ${name}\n`),
          },
          async ({ pool }, restored) => ({
            ...restored,
            verification: await verifyRestored(pool, options),
            engine: await compareEngine(pool, options),
          }),
        ),
      );
      const { header, manifest, verification, engine } = result;
      print(
        options,
        {
          taken_at: shortInstant(header.takenAt),
          product: header.product,
          rows: rowsOf(manifest),
          ...verificationJson(verification, engine),
          left_out: header.leftOut,
          warnings: manifest.warnings,
        },
        [
          `Restored ${contentText(header, manifest)}.`,
          ...verificationText(verification, 'the rows of every table'),
          ...engineText(engine),
          ...leftOutText(header),
          ...manifest.warnings.map((warning) => `WARNING of the backup: ${warning}`),
        ].join('\n'),
      );
      if (verification.faults.length > 0) process.exitCode = 1;
    });
}

function isDirectory(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() === true;
}
