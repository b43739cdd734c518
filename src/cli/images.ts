import { Command } from 'commander';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Config } from '../config/options.js';
import { measure } from '../disk/disk-reserve.js';
import { ImageNames } from '../engines/microvm/images/image-names.js';
import { ImageStore } from '../engines/microvm/images/image-store.js';
import { IMAGES_DIRECTORY } from '../engines/microvm/images/images-directory.js';
import { ownArchitecture } from '../engines/microvm/images/own-architecture.js';
import { ExplainedError } from '../lib/explained-error.js';
import { familiarForm, formatImageReference, parseImageReference } from '../spec/image-reference.js';
import { print } from './command.js';
import { withConfig } from './config-options.js';
import { common, OperatorCommand } from './operator-command.js';
import { json, wide } from './options.js';
import { table } from './table.js';

type ImagesOptions = Pick<Config, 'dataDir' | 'diskReserveMib'> & { json?: true; wide?: true };

const MIB = 1_024 * 1_024;

export function imagesCommand(): Command {
  return new Command('images')
    .description('the images that the operator gives to microVMs, without a registry')
    .addCommand(importCommand())
    .addCommand(listCommand())
    .addCommand(removeCommand());
}

function imageCommand(name: string): Command {
  return withConfig(new OperatorCommand(name), ['config', 'dataDir'], { isCommon: true }).addOption(
    common(json()),
  );
}

function importCommand(): Command {
  return withConfig(imageCommand('import'), ['diskReserveMib'])
    .description(
      'add the image of a file of "docker save", or of an archive or a directory in the OCI image layout; a sandbox of any organization can name it',
    )
    .argument('<file>', 'file or directory of the image')
    .option('--name <name>', 'name of the image, such as team/app:1 (default: the name in the file)')
    .action(async (file: string, options: ImagesOptions & { name?: string }) => {
      const { importImage } = await import('../engines/microvm/images/import-image.js');
      const store = await openStore(options);
      await store.removeLeftovers();
      const { reference, image } = await importImage(store, {
        file,
        name: options.name,
        architecture: ownArchitecture(),
        limit: { bytes: await freeBytes(store.root, options), beyond: 'no_space' },
        signal: interrupted(),
      });
      const { digest, base } = image;
      print(
        options,
        { name: reference, digest, bytes: base.bytes, sha256: base.sha256 },
        `${shown(reference)} is the image ${digest}, with ${mib(base.bytes)} MiB`,
      );
    });
}

function listCommand(): Command {
  return imageCommand('list')
    .addOption(common(wide()))
    .description('print the images of microVMs: imported ones have a name, and pulled ones none')
    .action(async (options: ImagesOptions) => {
      const store = await openStore(options);
      const names = await new ImageNames(store.root).list();
      const images = (await store.list()).flatMap(({ digest, base, uses }) => {
        const own = names.filter((name) => name.digest === digest).map(({ reference }) => reference);
        return (own.length === 0 ? [null] : own).map((name) => ({
          name,
          digest,
          bytes: base.bytes,
          uses,
        }));
      });
      const rows = images.map(({ name, digest, bytes, uses }) => [
        name === null ? '' : shown(name),
        digest,
        String(mib(bytes)),
        String(uses),
      ]);
      const head = ['NAME', 'IMAGE', 'MIB', 'USES'];
      print(options, { images }, rows.length === 0 ? 'no images' : table(head, rows, options));
    });
}

function removeCommand(): Command {
  return imageCommand('remove')
    .description('remove the name of an image, and the image when it has no other; its sandboxes keep theirs')
    .argument('<name>', 'name of the image')
    .action(async (name: string, options: ImagesOptions) => {
      const store = await openStore(options);
      const names = new ImageNames(store.root);
      const reference = parseImageReference(name);
      const found = reference && (await names.find(reference));
      if (!found) throw new ExplainedError(`there is no image ${name}: "sandkeep images list" has the names`);
      await names.remove(reference);
      const { digest } = found;
      const isNamed = (await names.list()).some((other) => other.digest === digest);
      const removed = !isNamed && (await store.remove(digest));
      const kept = 'its image has another name, and stays';
      print(
        options,
        { name: formatImageReference(reference), digest, removed },
        `${name} is removed${removed ? '' : `; ${kept}`}`,
      );
    });
}

async function openStore({ dataDir }: ImagesOptions): Promise<ImageStore> {
  return Promise.resolve(new ImageStore(join(dataDir, IMAGES_DIRECTORY)));
}

async function freeBytes(root: string, { diskReserveMib }: ImagesOptions): Promise<number> {
  await mkdir(root, { recursive: true, mode: 0o700 });
  const room = await measure('engine', root, diskReserveMib);
  return room ? Math.max(0, room.freeBytes - room.reserveBytes) : Infinity;
}

/** An interrupted import leaves nothing. */
function interrupted(): AbortSignal {
  const over = new AbortController();
  const stop = () => over.abort(new ExplainedError('interrupted: nothing was imported'));
  process.once('SIGINT', stop).once('SIGTERM', stop);
  return over.signal;
}

function shown(name: string): string {
  const reference = parseImageReference(name);
  return reference ? familiarForm(reference) : name;
}

function mib(bytes: number): number {
  return Math.ceil(bytes / MIB);
}
