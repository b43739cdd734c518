import type { Command } from 'commander';
import type { EngineDefinition } from '../engine/definition.js';
import type { Finding } from '../engine/finding.js';
import { valuesOf } from '../engines/open.js';
import { automaticEngine } from '../engines/plan.js';
import { EXAMINED_OPTIONS, engineNamed } from '../engines/register.js';
import { counted } from '../lib/counted.js';
import type { Config } from '../config/options.js';
import { SIGN_IN_OPTION_NAMES } from '../config/sign-in-options.js';
import { databaseCommand, print } from './command.js';
import { withConfig } from './config-options.js';
import { checkDatabase } from './doctor-database.js';
import { inspectDisks } from './doctor-disks.js';
import { readStored, type StoredInstallation } from './doctor-installation.js';
import { inspectKeys, type KeyOptions } from './doctor-keys.js';
import { checkDescriptors, checkNode, checkSystem } from './doctor-machine.js';
import { hostSystem, type HostSystem } from '../engine/host-system.js';
import { inspectPasskeys } from './doctor-passkeys.js';
import { inspectPreviews } from './doctor-previews.js';
import { inspectProvider } from './doctor-provider.js';
import { inspectTls } from './doctor-tls.js';

const NAMES = [
  'runtime',
  'volumesDir',
  'secretKeys',
  'secretKeysFile',
  'diskReserveMib',
  'tlsCert',
  'tlsKey',
  'forwardCa',
  'previewDomain',
  'previewHost',
  'previewTlsCert',
  'previewTlsKey',
  'advertiseUrl',
  'host',
  'basePath',
  ...SIGN_IN_OPTION_NAMES,
  ...EXAMINED_OPTIONS,
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
        ...inspectPreviews(options),
        ...(await inspectProvider(options)),
        inspectPasskeys(options, stored),
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
  const { dataDir, volumesDir } = options;
  const engine = examinedEngine(options.runtime, stored);
  const { findings, diskPath } = (await engine.examine?.(valuesOf(engine, options), {
    system,
    dataDir,
    volumesDir,
    hasOwnDatabase: options.databaseUrl === undefined,
    instanceId: stored?.instanceId,
    isRequired: options.runtime === engine.name || stored?.runtime === engine.name,
  })) ?? { findings: [], diskPath: undefined };
  return [...findings, ...(await inspectDisks(options, diskPath))];
}

/** Without a choice of the operator: the engine of the installation, else the one that a first start prefers. */
function examinedEngine(choice: string, stored: StoredInstallation | undefined): EngineDefinition {
  const named = engineNamed(choice);
  if (named) return named;
  const remembered = engineNamed(stored?.runtime ?? '');
  const fallback = automaticEngine('fallback');
  return remembered && remembered !== fallback ? remembered : automaticEngine('preferred');
}

const SIGNS = { ok: '✓', missing: '–', broken: '✗' };
const INDENT = ' '.repeat(15);

function findingsText(findings: readonly Finding[]): string {
  return findings
    .flatMap(({ check, state, found, remedy }) => [
      `${SIGNS[state]} ${check.padEnd(12)} ${found}`,
      ...(remedy === undefined ? [] : [`${INDENT}→ ${remedy}`]),
    ])
    .join('\n');
}
