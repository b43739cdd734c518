import type { Command } from 'commander';
import { counted } from '../lib/counted.js';
import type { Config } from '../config/options.js';
import { databaseCommand, print } from './command.js';
import { withConfig } from './config-options.js';
import { checkDatabase } from './doctor-database.js';
import { inspectDatabaseDisk, inspectDisks } from './doctor-disks.js';
import { checkDocker } from './doctor-docker.js';
import { findingsText, type Finding } from './doctor-finding.js';
import { readStored, type StoredInstallation } from './doctor-installation.js';
import { inspectKeys, type KeyOptions } from './doctor-keys.js';
import { inspectKubernetes } from './doctor-kubernetes.js';
import {
  checkDescriptors,
  checkHostPrograms,
  checkKernel,
  checkNode,
  checkSystem,
} from './doctor-machine.js';
import { hostSystem, type HostSystem } from './doctor-system.js';
import { inspectTls } from './doctor-tls.js';

const NAMES = [
  ...([
    'runtime',
    'dockerSocket',
    'dockerNetwork',
    'dockerRuntime',
    'dockerResolvers',
    'volumesDir',
  ] as const),
  ...(['kubeconfig', 'kubernetesContext', 'kubernetesNamespace', 'kubernetesNamespaces'] as const),
  'kubernetesNetwork',
  ...(['secretKeys', 'secretKeysFile', 'diskReserveMib', 'tlsCert', 'tlsKey', 'forwardCa'] as const),
] as const;
type DoctorOptions = KeyOptions & Pick<Config, (typeof NAMES)[number]>;

export function doctorCommand(): Command {
  return withConfig(databaseCommand('doctor'), NAMES)
    .description('name each lack of this machine or cluster, and the command that mends it')
    .action(async (options: DoctorOptions) => {
      const system = hostSystem();
      const database = await checkDatabase(options);
      const isUsable = database.every(({ state }) => state !== 'broken');
      const { findings: installation, stored } = isUsable ? await checkStored(options) : NOTHING_STORED;
      const findings = [
        checkSystem(system, options.databaseUrl),
        checkNode(system),
        checkDescriptors(),
        ...database,
        ...installation,
        ...(await checkRuntime(options, stored, system)),
        ...inspectTls(options),
      ];
      print(options, findings, findingsText(findings));
      if (findings.some(({ state }) => state === 'broken')) process.exitCode = 1;
    });
}

const NOTHING_STORED = { findings: [], stored: undefined };

/** The runtime that the installation remembers, and its keys. */
async function checkStored(
  options: DoctorOptions,
): Promise<{ findings: Finding[]; stored: StoredInstallation | undefined }> {
  const check = 'runtime';
  try {
    const stored = await readStored(options);
    const runtime: Finding = { check, state: 'ok', found: describeRuntime(stored) };
    return { findings: [runtime, checkKeys(options, stored)], stored };
  } catch (error) {
    const remedy = 'sandkeep migrate';
    return {
      findings: [{ check, state: 'broken', found: (error as Error).message, remedy }],
      stored: undefined,
    };
  }
}

function describeRuntime(stored: StoredInstallation | undefined): string {
  if (!stored) return 'not known, as no database runs';
  const { runtime, sandboxes } = stored;
  if (runtime === null) return 'none yet, as the installation was never served';
  const held = [...sandboxes].map(([name, count]) => counted(count, `${name} sandbox`, `${name} sandboxes`));
  return [`${runtime}, as at the last start of the service`, ...held].join('; ');
}

function checkKeys(options: DoctorOptions, stored: StoredInstallation | undefined): Finding {
  const check = 'keys';
  try {
    return { check, ...inspectKeys(options, stored) };
  } catch (error) {
    const remedy = 'give the file to the user of the service with mode 0600, or restore it (docs/backups.md)';
    return { check, state: 'broken', found: (error as Error).message, remedy };
  }
}

async function checkRuntime(
  options: DoctorOptions,
  stored: StoredInstallation | undefined,
  system: HostSystem,
): Promise<Finding[]> {
  const wanted = options.runtime === 'auto' ? (stored?.runtime ?? 'auto') : options.runtime;
  if (wanted === 'kubernetes') {
    const cluster = await inspectKubernetes(options, stored?.instanceId);
    return [...cluster, ...(await inspectDisks(options, undefined))];
  }
  if (options.runtime === 'simulated') return inspectDisks(options, undefined);
  const { findings, diskPath } = await checkDocker(options, { system, isRequired: wanted === 'docker' });
  const disks = await inspectDisks(options, diskPath);
  if (diskPath === undefined) return [...findings, ...disks];
  const shared = options.databaseUrl === undefined ? inspectDatabaseDisk(options, diskPath) : [];
  return [...findings, ...checkHostPrograms(system), checkKernel(), ...disks, ...shared];
}
