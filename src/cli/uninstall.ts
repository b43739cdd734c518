import type { Command } from 'commander';
import { resolve, sep } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { counted } from '../lib/counted.js';
import type { Config } from '../config/options.js';
import { readInstance } from '../db/instance-queries.js';
import { isMigrated } from '../db/migrate.js';
import { openForCommand, openForServer, requireInstallation, type Database } from '../db/open.js';
import { openPool } from '../db/pool.js';
import { ExplainedError } from '../lib/explained-error.js';
import { explainConnectionError } from '../engines/docker/connection-error.js';
import type {
  EngineObject,
  InstallationObjects,
  RemovableObjects,
} from '../engines/docker/installation-objects.js';
import { refuseBesideService } from '../workers/refuse-beside-service.js';
import { databaseCommand, print, withoutInstallation, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';

interface UninstallOptions extends CommonOptions, Pick<Config, 'dockerSocket' | 'volumesDir'> {
  yes?: true;
}

export function uninstallCommand(): Command {
  return withConfig(databaseCommand('uninstall'), ['dockerSocket', 'volumesDir'])
    .description(
      'remove the objects of the installation from the Docker engine: containers, networks, images, its program; the data directory stays',
    )
    .option('--yes', 'remove it without asking')
    .action(async (options: UninstallOptions) => {
      const database = await openWithoutService(options);
      try {
        await uninstall(options, await instanceOf(database, options));
      } finally {
        await database.close();
      }
    });
}

/** Owns the embedded database, so that no service can start meanwhile. Throws ExplainedError when a service runs. */
async function openWithoutService({ dataDir, databaseUrl }: UninstallOptions): Promise<Database> {
  const options = { dataDir, databaseUrl, command: 'uninstall' };
  if (databaseUrl !== undefined) return openForCommand(options);
  await requireInstallation(dataDir);
  return openForServer({ ...options, onCrash: () => undefined });
}

async function instanceOf(database: Database, options: UninstallOptions): Promise<string> {
  const pool = openPool(database.address, () => undefined);
  try {
    if (!(await isMigrated(pool))) throw withoutInstallation(options);
    if (options.databaseUrl !== undefined) await refuseBesideService(pool);
    return (await readInstance(pool)).id;
  } finally {
    await pool.end();
  }
}

async function uninstall(options: UninstallOptions, instanceId: string): Promise<void> {
  // Loaded on demand: the client library takes long to load.
  const { findInstallationObjects, connectForRemoval, removeObjects } =
    await import('../engines/docker/installation-objects.js');
  const docker = connectForRemoval(options.dockerSocket);
  const found = await findInstallationObjects(docker, instanceId).catch((cause: unknown) => {
    const { reason, remedy } = explainConnectionError(cause, options.dockerSocket);
    throw new ExplainedError(`${reason}, so nothing can be removed from it. ${remedy}`, { cause });
  });
  const removable = itemsOf(found.removable);
  if (!options.json) process.stdout.write(`${listing(instanceId, found)}\n`);
  if (removable.length > 0 && !(await isAgreed(options))) {
    throw new ExplainedError('nothing was removed: repeat the command with --yes');
  }
  await removeObjects(docker, found.removable);
  const still = itemsOf((await findInstallationObjects(docker, instanceId)).removable);
  if (still.length > 0) {
    throw new ExplainedError(
      `the engine still has ${names(still)}: repeat the command, or remove them by hand`,
    );
  }
  print(
    options,
    { instance: instanceId, removed: found.removable, in_use: found.inUse, kept: keptBy(options) },
    farewell(options, removable),
  );
}

async function isAgreed({ yes, json }: UninstallOptions): Promise<boolean> {
  if (yes) return true;
  if (json || !process.stdin.isTTY || !process.stdout.isTTY) return false;
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  try {
    return /^y(es)?$/i.test((await terminal.question('Remove all of this? [y/N] ')).trim());
  } finally {
    terminal.close();
  }
}

function itemsOf({ containers, networks, volumes, images, pulledImages }: RemovableObjects): EngineObject[] {
  return [...containers, ...networks, ...volumes, ...images, ...pulledImages];
}

function listing(instanceId: string, { removable, inUse }: InstallationObjects): string {
  const lines = [
    ...removable.containers.map(({ name, state }) => `  container  ${name} (${state})`),
    ...removable.networks.map(({ name }) => `  network    ${name}`),
    ...removable.volumes.map(({ name }) => `  volume     ${name} (the program that is process 1)`),
    ...removable.images.map(({ name }) => `  image      ${name}`),
    ...removable.pulledImages.map(({ name }) => `  image      ${name} (pulled)`),
  ];
  const title =
    lines.length === 0
      ? `The Docker engine has nothing of the installation ${instanceId}.`
      : `The installation ${instanceId} has in the Docker engine, with the disks of its sandboxes:`;
  const shared = inUse.map(({ name }) => `${name} stays: another installation uses it.`);
  return [title, ...lines, ...shared].join('\n');
}

function names(items: readonly EngineObject[]): string {
  return items.map(({ name }) => name).join(', ');
}

function keptBy({ dataDir, volumesDir }: UninstallOptions): string[] {
  const [data, volumes] = [resolve(dataDir), resolve(volumesDir)];
  return volumes.startsWith(`${data}${sep}`) ? [data] : [data, volumes];
}

function farewell(options: UninstallOptions, removed: readonly EngineObject[]): string {
  const [data = '', volumes = `${data}/volumes`] = keptBy(options);
  const external = options.databaseUrl !== undefined;
  const database = external ? '' : 'the database, ';
  return [
    ...(removed.length === 0 ? [] : [`Removed ${counted(removed.length, 'object')} from the engine.`]),
    `Kept: ${data} (${database}the keys) and ${volumes} (the data of volumes).`,
    `To delete them too: rm -r ${keptBy(options).join(' ')}`,
    ...(external ? ['The external database stays as well: drop it with the tools of PostgreSQL.'] : []),
  ].join('\n');
}
