import type { ContainerCreateOptions, HostConfig } from 'dockerode';
import { microsOf, parseInstant, type Instant } from '../../lib/instant.js';
import type { Run, RunSpec } from '../runtime.js';
import { ulimitOf } from './create-container.js';
import { SCRIPTS_DIRECTORY } from './files/scripts.js';
import type { ImageConfig } from './image.js';
import { INIT_PROGRAM, initArguments, signalNumber, type GuestInit } from './guest-init.js';
import type { Bind } from './mounts/staging-directory.js';

/** Marks the containers of one installation: another one on the same engine leaves them alone. */
export const INSTANCE_LABEL = 'dev.sandkeep.instance';
export const ORG_LABEL = 'dev.sandkeep.org';
export const SANDBOX_LABEL = 'dev.sandkeep.sandbox';
/** Before the keys of the user's labels: other programs on the machine act on labels, and must not act on a tenant's. */
const USER_LABEL = 'dev.sandkeep.label.';

const MIB = 1024 * 1024;
/** The engine's own, for images that set none. */
const DEFAULT_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';
const PIDS_LIMIT = 1024;
const LOG_LIMITS = { 'max-size': '10m', 'max-file': '2' };

/** What package managers and daemons that drop privileges need. A `restricted` sandbox does without. */
const CAPABILITIES = ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'KILL', 'SETGID', 'SETUID'];

/**
 * A container's labels are fixed when it is made, its name is not. So the run it was last given stands in the name, and
 * with it the start time that the container had before (base 36 microseconds, `0` for never): the engine's start time
 * belongs to this run exactly when it differs.
 */
export function containerName({ sandboxId, runId }: Run, startedAt: Instant | null): string {
  return `sandkeep-${sandboxId}-${runId}-${baselineOf(startedAt)}`;
}

export function parseContainerName(
  name: string,
): { sandboxId: string; runId: string; baseline: string } | undefined {
  const match = /^\/?sandkeep-([0-9a-f-]{36})-([0-9a-f-]{36})-([0-9a-z]+)$/.exec(name);
  return match ? { sandboxId: match[1]!, runId: match[2]!, baseline: match[3]! } : undefined;
}

/** Whether it is the start time that the container had before the run its name says: then the run has not started. */
export function isBaseline(startedAt: Instant | null, baseline: string): boolean {
  return baselineOf(startedAt) === baseline;
}

function baselineOf(startedAt: Instant | null): string {
  return startedAt === null ? '0' : microsOf(startedAt).toString(36);
}

/** The engine writes nanoseconds, and the year 1 for "never". */
export function parseEngineTime(text: string): Instant | null {
  return text.startsWith('0001-') ? null : (parseInstant(text) ?? null);
}

export function containerLabels({ orgId, sandboxId, spec }: Run, instanceId: string): Record<string, string> {
  return {
    ...Object.fromEntries(Object.entries(spec.labels).map(([key, value]) => [USER_LABEL + key, value])),
    [INSTANCE_LABEL]: instanceId,
    [ORG_LABEL]: orgId,
    [SANDBOX_LABEL]: sandboxId,
  };
}

export function containerOptions(
  { sandboxId, spec }: Run,
  image: ImageConfig,
  {
    network,
    init,
    runtimeClass,
    binds,
  }: { network: string; init: GuestInit; runtimeClass: string | undefined; binds: readonly Bind[] },
): ContainerCreateOptions {
  return {
    Image: spec.image,
    Env: envOf(spec, image),
    Entrypoint: [INIT_PROGRAM],
    Cmd: initArguments({
      command: commandOf(spec, image),
      untilExit: spec.endsWithCommand ?? false,
      stopSignal: signalNumber(image.stopSignal),
    }),
    // Process 1 knows what the image's command wants instead.
    StopSignal: 'SIGTERM',
    ...(spec.user === null ? {} : { User: spec.user }),
    ...(spec.workdir === null ? {} : { WorkingDir: spec.workdir }),
    // Who joins the network of another container has that one's name.
    ...(network.startsWith('container:') ? {} : { Hostname: spec.hostname ?? sandboxId }),
    // The standard input of a command stays open: a shell or interpreter without a script waits for it.
    OpenStdin: true,
    HostConfig: {
      NanoCpus: spec.vcpus * 1e9,
      Memory: spec.memoryMib * MIB,
      // Memory and swap together: no swap beyond the memory that was asked for.
      MemorySwap: spec.memoryMib * MIB,
      PidsLimit: PIDS_LIMIT,
      CapDrop: ['ALL'],
      CapAdd: spec.securityProfile === 'restricted' ? [] : CAPABILITIES,
      SecurityOpt: ['no-new-privileges'],
      NetworkMode: network,
      Ulimits: spec.rlimits.map(ulimitOf),
      Tmpfs: tmpfsOf(spec),
      // A volume's flags are on what is mounted at the source: `ReadOnly` would have the engine set them anew, without the rest.
      Mounts: [
        init.mount,
        ...binds.map(({ source, target, readonly = false }) => ({
          ...{ Type: 'bind' as const, Source: source, Target: target, ReadOnly: readonly },
          BindOptions: { Propagation: 'rprivate' as const },
        })),
      ],
      ...(spec.diskMib === null ? {} : { StorageOpt: { size: `${spec.diskMib}m` } }),
      ...(runtimeClass === undefined ? {} : { Runtime: runtimeClass }),
      RestartPolicy: { Name: 'no' },
      // What a sandbox prints is on the machine's disk, where no limit of the sandbox's own holds it.
      LogConfig: { Type: 'json-file', Config: LOG_LIMITS },
    } satisfies HostConfig,
  };
}

/** The scripts are on the PATH, behind everything else, unless the request says what the PATH is. */
function envOf({ env, scripts }: RunSpec, { path }: ImageConfig): string[] {
  const entries = env.map(({ key, value }) => `${key}=${value}`);
  if (Object.keys(scripts).length === 0 || env.some(({ key }) => key === 'PATH')) return entries;
  return [...entries, `PATH=${path ?? DEFAULT_PATH}:${SCRIPTS_DIRECTORY}`];
}

/**
 * The command that process 1 launches; empty for none. An image's own command is never launched: it is the default of
 * an exec.
 */
function commandOf({ cmd, entrypoint }: RunSpec, image: ImageConfig): string[] {
  if (cmd === null || cmd.length === 0) return [];
  return [...(entrypoint ?? image.entrypoint), ...cmd];
}

function tmpfsOf({ mounts }: RunSpec): Record<string, string> {
  const entries: Record<string, string> = {};
  for (const mount of mounts) {
    if (mount.type !== 'tmpfs') continue;
    const { readonly = false, noexec = false, nosuid = false, nodev = false } = mount.options ?? {};
    // Docker adds noexec, nosuid and nodev of its own; what was not asked for is switched off by name.
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
