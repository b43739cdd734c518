import type { Command } from 'commander';
import { resolve } from 'node:path';
import pg from 'pg';
import type { Config } from '../config/options.js';
import { findBinaries } from '../db/embedded/binaries.js';
import { checkCreatable, findDataDirectory, hasCluster, requireWritable } from '../db/embedded/directory.js';
import { chooseIdentity } from '../db/embedded/identity.js';
import { askOwner } from '../db/embedded/ownership.js';
import { openForCommand } from '../db/open.js';
import { connectionConfig } from '../db/pool.js';
import { connectionsFor } from '../http/connections.js';
import { descriptorLimit } from '../lib/descriptor-limit.js';
import { ExplainedError } from '../lib/explained-error.js';
import { explainConnectionError } from '../runtimes/docker/connection-error.js';
import { explainSharedLimits } from '../runtimes/docker/shared-limits.js';
import { VolumeStore } from '../volumes/storage/store.js';
import { databaseCommand, print } from './command.js';
import { withConfig } from './config-options.js';
import { inspectDisks } from './doctor-disks.js';
import { readStored, type StoredInstallation } from './doctor-installation.js';
import { inspectKeys, type KeyOptions } from './doctor-keys.js';

interface Finding {
  check: string;
  /** `missing`: the service works, with fewer features. */
  state: 'ok' | 'missing' | 'broken';
  found: string;
}

const NAMES = [
  ...(['dockerSocket', 'dockerNetwork', 'dockerRuntime', 'volumesDir'] as const),
  ...(['secretKeys', 'secretKeysFile', 'diskReserveMib'] as const),
] as const;
type DoctorOptions = KeyOptions & Pick<Config, (typeof NAMES)[number]>;

const OLDEST_NODE = [20, 19] as const;
/** Enough for 2,000 connections. */
const FEW_DESCRIPTORS = 4_096;

export function doctorCommand(): Command {
  return withConfig(databaseCommand('doctor'), NAMES)
    .description('name each lack of this machine and its remedy')
    .action(async (options: DoctorOptions) => {
      const database = await checkDatabase(options);
      const stored = database.state === 'broken' ? [] : await checkStored(options);
      const { finding: docker, diskPath } = await checkDocker(options);
      const disks = await inspectDisks(options, diskPath);
      const kernel = diskPath === undefined ? [] : [checkKernel()];
      const machine = [docker, ...kernel, ...disks];
      const findings: Finding[] = [checkNode(), checkDescriptors(), database, ...stored, ...machine];
      const signs = { ok: '✓', missing: '–', broken: '✗' };
      const text = findings
        .map(({ check, state, found }) => `${signs[state]} ${check.padEnd(12)} ${found}`)
        .join('\n');
      print(options, findings, text);
      if (findings.some(({ state }) => state === 'broken')) process.exitCode = 1;
    });
}

function checkNode(): Finding {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  const ok = major > OLDEST_NODE[0] || (major === OLDEST_NODE[0] && minor >= OLDEST_NODE[1]);
  const found = `Node ${process.versions.node}${ok ? '' : `: Sandkeep needs ${OLDEST_NODE.join('.')} or later`}`;
  return { check: 'node', state: ok ? 'ok' : 'broken', found };
}

/** The service inherits the limit of the shell, the unit or the container that starts it. */
function checkDescriptors(): Finding {
  const limit = descriptorLimit();
  const check = 'files';
  if (limit === undefined) return { check, state: 'ok', found: 'the system tells no limit of descriptors' };
  const room = `${limit} descriptors, for ${connectionsFor(limit)} connections of the API`;
  if (limit >= FEW_DESCRIPTORS) return { check, state: 'ok', found: room };
  const remedy =
    'raise the limit with "ulimit -n 65536", LimitNOFILE=65536 in the systemd unit, or --ulimit nofile=65536:65536 for a container';
  return { check, state: 'missing', found: `${room}: ${remedy}` };
}

async function checkDatabase({ databaseUrl, dataDir }: DoctorOptions): Promise<Finding> {
  const check = 'database';
  if (databaseUrl !== undefined) {
    let client: pg.Client | undefined;
    try {
      const { address } = await openForCommand({ databaseUrl, dataDir, command: 'doctor' });
      client = new pg.Client(connectionConfig(address));
      await client.connect();
      const { rows } = await client.query<{ server_version: string }>('show server_version');
      const version = rows[0]!.server_version;
      const ok = Number.parseInt(version, 10) >= 15;
      const found = `external PostgreSQL ${version}${ok ? '' : ': 15 or later is needed'}`;
      return { check, state: ok ? 'ok' : 'broken', found };
    } catch (error) {
      return { check, state: 'broken', found: explainUnusable(error) };
    } finally {
      await client?.end().catch(() => undefined);
    }
  }
  try {
    const binaries = findBinaries();
    const directory = findDataDirectory(dataDir);
    if (!directory) {
      checkCreatable(dataDir);
      return { check, state: 'ok', found: `embedded PostgreSQL in ${resolve(dataDir)}; not created yet` };
    }
    requireWritable(directory.root);
    const identity = chooseIdentity(binaries, directory.root);
    const owner = await askOwner(directory);
    const use = owner
      ? `in use by "sandkeep ${owner.command}" (process ${owner.pid})`
      : hasCluster(directory)
        ? 'not running'
        : 'not created yet';
    const found = `embedded PostgreSQL in ${directory.root}, as ${identity.description}; ${use}`;
    return { check, state: 'ok', found };
  } catch (error) {
    return { check, state: 'broken', found: (error as Error).message };
  }
}

/** The runtime that the installation remembers, and its keys. */
async function checkStored(options: DoctorOptions): Promise<Finding[]> {
  try {
    const stored = await readStored(options);
    return [{ check: 'runtime', state: 'ok', found: describeRuntime(stored) }, checkKeys(options, stored)];
  } catch (error) {
    return [{ check: 'runtime', state: 'broken', found: (error as Error).message }];
  }
}

function describeRuntime(stored: StoredInstallation | undefined): string {
  if (!stored) return 'not known, as no database runs';
  const { runtime, sandboxes } = stored;
  if (runtime === null) return 'none yet, as the installation was never served';
  const held = [...sandboxes].map(([name, count]) => `${count} ${name} sandboxes`);
  return [`${runtime}, as at the last start of the service`, ...held].join('; ');
}

function checkKeys(options: DoctorOptions, stored: StoredInstallation | undefined): Finding {
  const check = 'keys';
  try {
    return { check, ...inspectKeys(options, stored) };
  } catch (error) {
    return { check, state: 'broken', found: (error as Error).message };
  }
}

function explainUnusable(error: unknown): string {
  const { message, code } = error as NodeJS.ErrnoException;
  // An error of several addresses has a code and no message.
  return error instanceof ExplainedError
    ? message
    : `cannot use the database of --database-url: ${message || code}`;
}

async function checkDocker({
  dockerSocket: socket,
  dockerNetwork: network,
  dockerRuntime: runtimeClass,
  dataDir,
  volumesDir,
}: DoctorOptions): Promise<{ finding: Finding; diskPath?: string | undefined }> {
  const check = 'docker';
  const { openDocker } = await import('../runtimes/choose.js');
  try {
    const runtime = await openDocker({
      ...{ dockerSocket: socket, dockerNetwork: network, dockerRuntime: runtimeClass },
      ...{ dataDir, instanceId: 'doctor', volumes: new VolumeStore(volumesDir) },
    });
    const state = runtime.capabilities.has('network_policy') || network === 'none' ? 'ok' : 'missing';
    const finding: Finding = { check, state, found: runtime.description };
    return { finding, diskPath: runtime.diskPath };
  } catch (error) {
    if (error instanceof ExplainedError) {
      return { finding: { check, state: 'broken', found: error.message } };
    }
    const { reason, remedy } = explainConnectionError(error, socket);
    const found = `${reason}: sandboxes can only be simulated. ${remedy}`;
    return { finding: { check, state: 'missing', found } };
  }
}

function checkKernel(): Finding {
  const low = explainSharedLimits();
  if (low === undefined)
    return { check: 'kernel', state: 'ok', found: 'the memory of a sandbox bounds its part' };
  return { check: 'kernel', state: 'missing', found: low };
}
