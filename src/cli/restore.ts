import type { Command } from 'commander';
import type { EngineComparison } from '../backup/compare-engine.js';
import type { Verification } from '../backup/verify-restored.js';
import type { Config } from '../config/options.js';
import { shortInstant } from '../lib/instant.js';
import { contentText, leftOutText, rowsOf, withUnlock } from './backup.js';
import { withBar } from './backup-progress.js';
import { databaseCommand, print, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';

const NAMES = [
  ...([
    'volumesDir',
    'secretKeys',
    'secretKeysFile',
    'dockerSocket',
    'dockerNetwork',
    'dockerRuntime',
  ] as const),
  ...(['kubeconfig', 'kubernetesContext', 'kubernetesNamespace'] as const),
] as const;

interface RestoreCommandOptions extends CommonOptions, Pick<Config, (typeof NAMES)[number]> {
  identityFile?: string;
  passphraseFile?: string;
}

export function restoreCommand(): Command {
  return withUnlock(withConfig(databaseCommand('restore'), NAMES))
    .description('restore a backup into an empty data directory and an empty database, and verify it')
    .argument('<file>', 'the backup')
    .action(async (file: string, options: RestoreCommandOptions) => {
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
            ...{ file, places: options, databaseUrl: options.databaseUrl, unlock },
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
          events_verified: verification.events,
          faults: verification.faults,
          notes: verification.notes,
          engine: engine && {
            runtime: engine.runtime,
            unreachable: engine.unreachable,
            not_held: engine.notHeld,
            not_stored: engine.notStored,
          },
          left_out: header.leftOut,
          warnings: manifest.warnings,
        },
        [
          `Restored ${contentText(header, manifest)}.`,
          ...verificationText(verification),
          ...engineText(engine),
          ...leftOutText(header),
          ...manifest.warnings.map((warning) => `WARNING of the backup: ${warning}`),
        ].join('\n'),
      );
      if (verification.faults.length > 0) process.exitCode = 1;
    });
}

function verificationText({ faults, notes, events }: Verification): string[] {
  const verdict =
    faults.length === 0
      ? `Verified: the rows of every table, and ${events} events in their signed logs.`
      : 'NOT AS IT WAS:';
  return [verdict, ...faults.map((fault) => `  - ${fault}`), ...notes.map((note) => `NOTE: ${note}`)];
}

const SHOWN = 20;

function engineText(engine: EngineComparison | null): string[] {
  if (!engine) return [];
  const { runtime, unreachable, notHeld, notStored, running } = engine;
  if (unreachable !== null) {
    return [
      `The ${runtime} engine was not compared: ${unreachable}. The service compares ${running} running sandboxes with it at its start.`,
    ];
  }
  const list = (ids: readonly string[]) => ids.slice(0, SHOWN).map((id) => `  - ${id}`);
  return [
    `The ${runtime} engine holds ${running - notHeld.length} of the ${running} sandboxes that run in the store.`,
    ...(notHeld.length === 0 ? [] : [`The service will record ${notHeld.length} as lost:`, ...list(notHeld)]),
    ...(notStored.length === 0
      ? []
      : [
          `The service will remove ${notStored.length} that the store does not know as running:`,
          ...list(notStored),
        ]),
  ];
}
