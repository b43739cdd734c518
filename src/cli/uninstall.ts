import type { Command } from 'commander';
import { resolve, sep } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { counted } from '../lib/counted.js';
import type { Config } from '../config/options.js';
import { readInstance } from '../db/instance-queries.js';
import { isMigrated } from '../db/migrate.js';
import { openForCommand, openForServer, requireInstallation, type Database } from '../db/open.js';
import { openPool, type Pool } from '../db/pool.js';
import type { EngineDefinition, Remains, Removal } from '../engine/definition.js';
import { valuesOf } from '../engines/open.js';
import { servedRuntimes, workerIds } from '../engines/queries.js';
import { LEAVING_ENGINES, LEAVING_OPTIONS } from '../engines/register.js';
import { ExplainedError } from '../lib/explained-error.js';
import { refuseBesideService } from '../workers/refuse-beside-service.js';
import { databaseCommand, print, withoutInstallation, type CommonOptions } from './command.js';
import { withConfig } from './config-options.js';

interface UninstallOptions extends CommonOptions, Pick<Config, 'volumesDir'> {
  yes?: true;
}

export function uninstallCommand(): Command {
  return withConfig(databaseCommand('uninstall'), [...LEAVING_OPTIONS, 'volumesDir'])
    .description(
      `remove the objects of the installation from the ${LEAVING_ENGINES.map(({ label }) => label).join(' and the ')}: containers or virtual machines with their disks, snapshots, networks, images, its program; the rest of the data directory stays`,
    )
    .option('--yes', 'remove it without asking')
    .action(async (options: UninstallOptions) => {
      const database = await openWithoutService(options);
      const pool = openPool(database.address, () => undefined);
      try {
        await uninstall(options, pool);
      } finally {
        await pool.end();
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

async function uninstall(options: UninstallOptions, pool: Pool): Promise<void> {
  if (!(await isMigrated(pool))) throw withoutInstallation(options);
  await refuseService(options, pool);
  const { id: instanceId } = await readInstance(pool);
  const { found, failed } = await findAll(options, pool, instanceId);
  const all = [...found.values()];
  const count = all.reduce((sum, { lines }) => sum + lines.length, 0);
  if (!options.json) for (const line of listing(instanceId, found)) process.stdout.write(`${line}\n`);
  if (count > 0 && !(await isAgreed(options))) {
    throw new ExplainedError('nothing was removed: repeat the command with --yes');
  }
  // Since the question, somebody may have started one.
  await refuseService(options, pool);
  const removals: Removal[] = [];
  for (const [engine, remains] of found) {
    const removal = await remains.remove().catch((error: unknown) => void failed.push(messageOf(error)));
    if (!removal) continue;
    if (removal.left.length > 0)
      failed.push(
        `the ${engine.label} still has ${removal.left.join(', ')}: repeat the command, or remove them by hand`,
      );
    removals.push(removal);
  }
  if (failed.length > 0) throw new ExplainedError(failed.join('\nsandkeep: '));
  const removed = byKind(removals);
  const begun = removals.flatMap(({ inUse }) => inUse);
  print(
    options,
    {
      instance: instanceId,
      removed,
      in_use: [...all.flatMap(({ inUse }) => inUse), ...begun],
      kept: keptBy(options),
    },
    [...begun.map(staying), ...farewell(options, Object.values(removed).flat().length)].join('\n'),
  );
}

/** An engine that does not answer keeps its objects, and does not keep others from losing theirs. */
async function findAll(
  options: UninstallOptions,
  pool: Pool,
  instanceId: string,
): Promise<{ found: Map<EngineDefinition, Remains>; failed: string[] }> {
  const workers = await workerIds(pool);
  const installation = {
    instanceId,
    dataDir: options.dataDir,
    // An embedded database is in the data directory, so both are of one installation.
    isOwn: (engineId: string) => options.databaseUrl === undefined || workers.has(engineId),
  };
  const served = await servedRuntimes(pool);
  const found = new Map<EngineDefinition, Remains>();
  const failed: string[] = [];
  for (const engine of LEAVING_ENGINES.filter(({ name }) => served.has(name))) {
    await engine.findRemains!(valuesOf(engine, options), installation).then(
      (remains) => found.set(engine, remains),
      (error: unknown) => failed.push(messageOf(error)),
    );
  }
  const [reason] = failed;
  if (found.size === 0 && reason !== undefined) throw new ExplainedError(reason);
  return { found, failed };
}

/** Throws it, unless it is for people. */
function messageOf(error: unknown): string {
  if (!(error instanceof ExplainedError)) throw error;
  return error.message;
}

/** Nobody starts one on an embedded database meanwhile: this process owns it. */
async function refuseService({ databaseUrl }: UninstallOptions, pool: Pool): Promise<void> {
  if (databaseUrl !== undefined) await refuseBesideService(pool);
}

function byKind(removals: readonly Removal[]): Record<string, object[]> {
  const kinds: Record<string, object[]> = {};
  for (const [kind, objects] of removals.flatMap(({ removed }) => Object.entries(removed)))
    (kinds[kind] ??= []).push(...objects);
  return kinds;
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

function listing(instanceId: string, found: ReadonlyMap<EngineDefinition, Remains>): string[] {
  return [...found].flatMap(([{ label }, { lines, inUse }]) => [
    lines.length === 0
      ? `The ${label} has nothing of the installation ${instanceId}.`
      : `The installation ${instanceId} has in the ${label}, with the disks of its sandboxes:`,
    ...lines.map((line) => `  ${line}`),
    ...inUse.map(staying),
  ]);
}

function staying({ name }: { name: string }): string {
  return `${name} stays: another installation uses it.`;
}

function keptBy({ dataDir, volumesDir }: UninstallOptions): string[] {
  const [data, volumes] = [resolve(dataDir), resolve(volumesDir)];
  return volumes.startsWith(`${data}${sep}`) ? [data] : [data, volumes];
}

function farewell(options: UninstallOptions, removed: number): string[] {
  const [data = '', volumes = `${data}/volumes`] = keptBy(options);
  const external = options.databaseUrl !== undefined;
  const database = external ? '' : 'the database, ';
  return [
    ...(removed === 0 ? [] : [`Removed ${counted(removed, 'object')} from the engine.`]),
    `Kept: ${data} (${database}the keys) and ${volumes} (the data of volumes).`,
    `To delete them too: rm -r ${keptBy(options).join(' ')}`,
    ...(external ? ['The external database stays as well: drop it with the tools of PostgreSQL.'] : []),
  ];
}
