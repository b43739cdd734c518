import { Option, type Command } from 'commander';
import { statSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { counted } from '../lib/counted.js';
import type { Config } from '../config/options.js';
import type { Header, Manifest } from '../backup/archive/format.js';
import { ExplainedError } from '../lib/explained-error.js';
import { shortInstant } from '../lib/instant.js';
import { byteText, withBar } from './backup-progress.js';
import { databaseCommand, print, withDatabase, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';
import { many } from './events-verify.js';
import { common, OperatorCommand } from './operator-command.js';
import { json } from './options.js';

interface BackupCommandOptions
  extends CommonOptions, Pick<Config, 'volumesDir' | 'secretKeys' | 'secretKeysFile'> {
  volumes: boolean;
  keys: boolean;
  encryptTo: string[];
  passphraseFile?: string;
}

export function backupCommand(): Command {
  return withConfig(databaseCommand('backup'), ['volumesDir', 'secretKeys', 'secretKeysFile'])
    .description('write a backup of the whole installation to one file, while the service works')
    .argument('<path>', 'the file to create, or a directory for a file with the time in its name')
    .option('--without-volumes', 'leave the data of volumes out', false)
    .option('--without-keys', 'leave the keys of secrets and of the event log out', false)
    .addOption(
      many('--encrypt-to <key>', 'encrypt to this public key of age (age1…), whose private key opens it'),
    )
    .addOption(passphraseOption('encrypt under the first line of this file'))
    .action(async (path: string, options: BackupCommandOptions & Left) => backUp(path, options))
    .addCommand(verifyCommand());
}

interface Left {
  withoutVolumes: boolean;
  withoutKeys: boolean;
}

async function backUp(path: string, options: BackupCommandOptions & Left): Promise<void> {
  const { encryptionFor } = await import('../backup/archive/encryption.js');
  const { makeBackup } = await import('../backup/make.js');
  const encrypt = await encryptionFor(options);
  const file = fileIn(path, encrypt !== undefined);
  const begun = performance.now();
  const made = await withDatabase(options, 'backup', (pool) =>
    withBar(undefined, (bar) =>
      makeBackup(pool, {
        places: options,
        file,
        encrypt,
        withVolumes: !options.withoutVolumes,
        withKeys: !options.withoutKeys,
        onPart: (name) => bar.name(name),
      }),
    ),
  );
  const { header, manifest, bytes } = made;
  const seconds = (performance.now() - begun) / 1000;
  print(
    options,
    {
      file,
      bytes,
      taken_at: shortInstant(header.takenAt),
      rows: rowsOf(manifest),
      volumes: volumesOf(manifest).length,
      encrypted: encrypt !== undefined,
      left_out: header.leftOut,
      warnings: manifest.warnings,
    },
    [
      `${file}: ${byteText(bytes)} in ${seconds.toFixed(1)} s: ${contentText(header, manifest)}`,
      ...leftOutText(header),
      ...manifest.warnings.map((warning) => `WARNING: ${warning}`),
      ...(encrypt || options.withoutKeys
        ? []
        : ['It has the keys and is not encrypted: it opens every secret. Keep it like a key.']),
    ].join('\n'),
  );
}

interface VerifyOptions {
  json?: true;
  identityFile?: string;
  passphraseFile?: string;
}

function verifyCommand(): Command {
  return withUnlock(new OperatorCommand('verify'))
    .description('read a backup to its end and compare it with its checksums; restores nothing')
    .argument('<file>', 'the backup')
    .addOption(common(json()))
    .action(async (file: string, _: VerifyOptions, command: Command) => {
      // The parent takes options that both have.
      const options = command.optsWithGlobals<VerifyOptions>();
      const { unlockFor } = await import('../backup/archive/encryption.js');
      const { sizeOf, verifyArchive } = await import('../backup/archive/open.js');
      const unlock = await unlockFor(options);
      const { header, manifest } = await withBar(sizeOf(file), (bar) =>
        verifyArchive(file, { unlock, onProgress: (bytes) => bar.at(bytes) }),
      );
      print(
        options,
        {
          file,
          format: header.format,
          product: header.product,
          schema: header.database.migrations.at(-1)?.name ?? null,
          taken_at: shortInstant(header.takenAt),
          rows: rowsOf(manifest),
          volumes: volumesOf(manifest).length,
          left_out: header.leftOut,
          warnings: manifest.warnings,
        },
        [
          `${file} is complete and unchanged: ${contentText(header, manifest)}`,
          ...leftOutText(header),
          ...manifest.warnings.map((warning) => `WARNING: ${warning}`),
        ].join('\n'),
      );
    });
}

export function withUnlock(command: Command): Command {
  return command
    .addOption(new Option('--identity-file <file>', 'file of the private key of age that opens the backup'))
    .addOption(passphraseOption('its first line is the passphrase that opens the backup'));
}

function passphraseOption(description: string): Option {
  return new Option('--passphrase-file <file>', description);
}

function fileIn(path: string, isEncrypted: boolean): string {
  const found = statSync(path, { throwIfNoEntry: false });
  if (!found) return resolve(path);
  if (!found.isDirectory()) throw new ExplainedError(`${path} exists: choose another name`);
  const time = new Date().toISOString().replace(/[-:]|\.\d+/g, '');
  return join(resolve(path), `sandkeep-${time}.tar.gz${isEncrypted ? '.age' : ''}`);
}

export function rowsOf({ parts }: Manifest): number {
  return parts.reduce((sum, { rows = 0 }) => sum + rows, 0);
}

function volumesOf({ parts }: Manifest): Manifest['parts'] {
  return parts.filter(({ name, removed }) => name.startsWith('volumes/') && !removed);
}

export function contentText(header: Header, manifest: Manifest): string {
  const { database, product, takenAt } = header;
  const volumes = volumesOf(manifest);
  const inVolumes = volumes.reduce((sum, { bytes }) => sum + bytes, 0);
  return `${counted(rowsOf(manifest), 'row')} of ${counted(database.tables.length, 'table')} and ${counted(volumes.length, 'volume')} with ${byteText(inVolumes)}, of ${shortInstant(takenAt)}, by Sandkeep ${product}`;
}

export function leftOutText({ leftOut }: Header): string[] {
  return ['NOT in it:', ...leftOut.map((part) => `  - ${part}`)];
}
