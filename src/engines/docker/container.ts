import type { ContainerCreateOptions, HostConfig } from 'dockerode';
import { environmentOf } from '../../engine/environment.js';
import type { Run } from '../../engine/runtime.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { ulimitOf } from './create-container.js';
import { SCRIPTS_DIRECTORY } from '../../engine/run-files.js';
import {
  DEFAULT_PATH,
  GUEST_DIRECTORY,
  INIT_PROGRAM,
  initArguments,
  signalNumber,
} from '../../guest/programs.js';
import type { GuestInit } from './guest-init.js';
import type { EngineImage } from './images/engine-image.js';
import type { Bind } from './mounts/staging-directory.js';
import { trustVariables } from '../../machine-network/trust/trust-files.js';
import { cpuMillis } from '../../engine/shared-cpu.js';

export const INSTANCE_LABEL = 'dev.sandkeep.instance';
export const ORG_LABEL = 'dev.sandkeep.org';
export const SANDBOX_LABEL = 'dev.sandkeep.sandbox';
/** The run that the container was created for. */
export const RUN_LABEL = 'dev.sandkeep.run';
export const IMAGE_LABEL = 'dev.sandkeep.image';
/** The entrypoint of the image of a member of a pool, as JSON: the container has process 1 in its place. */
export const ENTRYPOINT_LABEL = 'dev.sandkeep.entrypoint';
/** Other programs on the machine react to labels, and must not obey those of a tenant. */
const USER_LABEL = 'dev.sandkeep.label.';

const MIB = 1024 * 1024;
/** The scripts of a specification are shorter. */
const LATE_SCRIPTS = 'rw,exec,nosuid,nodev,mode=1777,size=4m';
const LONGEST_ENTRYPOINT = 16 * 1024;
export const LOG_LIMITS = { 'max-size': '10m', 'max-file': '2' };

/**
 * A service of the machine has 1024, so eight CPUs of sandboxes weigh as much as the database where they are siblings.
 */
const SHARES_PER_VCPU = 128;
/** The kernel's lower bound. */
const SMALLEST_SHARES = 2;
/** The highest is 1000. A machine without memory kills sandboxes before the database and the service. */
const OOM_SCORE = 900;

/** For package managers, and for daemons that drop privileges. */
const CAPABILITIES = ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'KILL', 'SETGID', 'SETUID'];

export function containerLabels(
  run: Run,
  { labels, digest, entrypoint }: EngineImage,
  instanceId: string,
): Record<string, string> {
  const { orgId, sandboxId, runId, spec } = run;
  return {
    // The container would have those of its image.
    ...Object.fromEntries(labels.map((name) => [name, ''])),
    ...Object.fromEntries(Object.entries(spec.labels).map(([key, value]) => [USER_LABEL + key, value])),
    [INSTANCE_LABEL]: instanceId,
    [ORG_LABEL]: orgId,
    [SANDBOX_LABEL]: sandboxId,
    [RUN_LABEL]: runId,
    [IMAGE_LABEL]: digest,
    ...(takesLateCommand(run, { entrypoint }) ? { [ENTRYPOINT_LABEL]: JSON.stringify(entrypoint) } : {}),
  };
}

export function containerOptions(
  run: Run,
  image: EngineImage,
  {
    network,
    init,
    runtimeClass,
    processes,
    sharedCpuMillis,
    writes,
    controlGroup,
    binds,
    hostName,
  }: {
    network: string;
    hostName: string | undefined;
    init: GuestInit;
    runtimeClass: string | undefined;
    processes: number;
    sharedCpuMillis: number;
    writes: { disks: readonly string[]; mibPerSecond: number };
    controlGroup: string | undefined;
    binds: readonly Bind[];
  },
): ContainerCreateOptions {
  const { sandboxId, spec } = run;
  const millis = cpuMillis(spec.vcpus, sharedCpuMillis);
  const takesHandover = takesLateCommand(run, image);
  return {
    // Its tag could lead to another image by now.
    Image: image.id,
    // The engine would run the probes of an image as often as the image says.
    Healthcheck: { Test: ['NONE'] },
    Env: envOf(run, image),
    Entrypoint: [INIT_PROGRAM],
    Cmd: initArguments({
      command: commandOf(spec, image),
      untilExit: spec.endsWithCommand ?? false,
      stopSignal: signalNumber(image.stopSignal),
      workdir: spec.workdir,
      hostName,
      agents: true,
      takesHandover,
    }),
    // Process 1 translates SIGTERM into the stop signal of the image.
    StopSignal: 'SIGTERM',
    ...(spec.user === null ? {} : { User: spec.user }),
    // The engine would make a missing directory for root.
    ...(spec.workdir === null ? {} : { WorkingDir: '/' }),
    ...(network.startsWith('container:') ? {} : { Hostname: spec.hostname ?? sandboxId }),
    // A shell or interpreter without a script would end without standard input.
    OpenStdin: true,
    HostConfig: {
      NanoCpus: millis * 1e6,
      Memory: spec.memoryMib * MIB,
      MemorySwap: spec.memoryMib * MIB,
      CpuShares: Math.max(SMALLEST_SHARES, Math.round((millis * SHARES_PER_VCPU) / 1_000)),
      PidsLimit: processes,
      ...(writes.mibPerSecond === 0
        ? {}
        : {
            BlkioDeviceWriteBps: writes.disks.map((disk) => ({
              Path: disk,
              Rate: writes.mibPerSecond * MIB,
            })),
          }),
      ...(controlGroup === undefined ? {} : { CgroupParent: controlGroup }),
      OomScoreAdj: OOM_SCORE,
      CapDrop: ['ALL'],
      CapAdd: spec.securityProfile === 'restricted' ? [] : CAPABILITIES,
      SecurityOpt: ['no-new-privileges'],
      NetworkMode: network,
      Ulimits: spec.rlimits.map(ulimitOf),
      Tmpfs: {
        ...tmpfsOf(spec),
        // Process 1 writes the scripts there, as the user of the image. The mount around it is read-only.
        ...(takesHandover && hasGuestFiles(binds) ? { [SCRIPTS_DIRECTORY]: LATE_SCRIPTS } : {}),
      },
      // With `ReadOnly` the engine would replace the mount flags of the source.
      Mounts: [
        ...(hasGuestFiles(binds) ? [] : [init.mount]),
        ...binds.map(({ source, target, readonly = false }) => ({
          Type: 'bind' as const,
          Source: source,
          Target: target,
          ReadOnly: readonly,
          BindOptions: { Propagation: 'rprivate' as const },
        })),
      ],
      ...(spec.diskMib === null ? {} : { StorageOpt: { size: `${spec.diskMib}m` } }),
      ...(runtimeClass === undefined ? {} : { Runtime: runtimeClass }),
      RestartPolicy: { Name: 'no' },
      // Logs are on the machine's disk, outside the disk limit of the sandbox.
      LogConfig: { Type: 'json-file', Config: LOG_LIMITS },
    } satisfies HostConfig,
  };
}

/** Without them a sandbox needs the volume of the programs, and scripts on its disk. */
export function hasGuestFiles(binds: readonly Bind[]): boolean {
  return binds.some(({ target }) => target === GUEST_DIRECTORY);
}

/** An image may have any entrypoint. This one must fit into a handover, beside the specification. */
function takesLateCommand(
  { isMember = false }: Run,
  { entrypoint }: Pick<EngineImage, 'entrypoint'>,
): boolean {
  const length = entrypoint.reduce((sum, word) => sum + word.length + 1, 0);
  return isMember && length <= LONGEST_ENTRYPOINT && !entrypoint.some((word) => word.includes('\0'));
}

function envOf(run: Run, { path, variables }: EngineImage): string[] {
  const { env, scripts } = run.spec;
  const taken = [...variables, ...env.map(({ key }) => key)];
  const entries = [
    ...trustVariables(run.spec, taken),
    ...environmentOf(run).map(({ key, value }) => `${key}=${value}`),
  ];
  if (Object.keys(scripts).length === 0 || env.some(({ key }) => key === 'PATH')) return entries;
  return [...entries, `PATH=${path ?? DEFAULT_PATH}:${SCRIPTS_DIRECTORY}`];
}

/** An image's own command is not launched: it is the default of an exec. */
export function commandOf(
  { cmd, entrypoint }: Pick<RunSpec, 'cmd' | 'entrypoint'>,
  image: Pick<EngineImage, 'entrypoint'>,
): string[] {
  if (cmd === null || cmd.length === 0) return [];
  return [...(entrypoint ?? image.entrypoint), ...cmd];
}

function tmpfsOf({ mounts }: RunSpec): Record<string, string> {
  const entries: Record<string, string> = {};
  for (const mount of mounts) {
    if (mount.type !== 'tmpfs') continue;
    const { readonly = false, noexec = false, nosuid = false, nodev = false } = mount.options ?? {};
    // Docker defaults to noexec, nosuid and nodev, so every flag is given.
    const flags = [
      readonly ? 'ro' : 'rw',
      noexec ? 'noexec' : 'exec',
      nosuid ? 'nosuid' : 'suid',
      nodev ? 'nodev' : 'dev',
    ];
    if (mount.size_mib != null) flags.push(`size=${mount.size_mib}m`);
    entries[mount.guest] = flags.join(',');
  }
  return entries;
}
