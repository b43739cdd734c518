import { Buffer } from 'node:buffer';
import { environmentOf } from '../../../engine/environment.js';
import { contentOf, SCRIPTS_DIRECTORY, scriptTexts } from '../../../engine/run-files.js';
import { StartRefusedError, type Run } from '../../../engine/runtime.js';
import { RLIMITS } from '../../../guest/command.js';
import { DEFAULT_PATH, initArguments, signalNumber } from '../../../guest/programs.js';
import type { RunMount, RunSpec } from '../../../spec/run-spec.js';
import type { BootFiles } from './boot-files.js';
import { trustVariables } from '../../../machine-network/trust/trust-files.js';
import type {
  BootConfiguration,
  BootHandoff,
  BootMount,
  BootNetwork,
  BootPatch,
  BootTrust,
} from './configuration.js';

/** The part of the configuration of an image that its sandboxes get. */
interface ImageDefaults {
  /** Each `NAME=value`. */
  env: readonly string[];
  entrypoint: readonly string[];
  /** Empty: root. */
  user: string;
  /** Empty: the root directory. */
  workdir: string;
  stopSignal: string | null;
}

interface RunSurroundings {
  image: ImageDefaults;
  modules: BootFiles['modules'];
  network: BootNetwork | null;
  /** The tags of mounts that show a file. Default: each shows a directory. */
  sharedFiles?: ReadonlySet<string>;
  /** The disk is a new copy of that of another sandbox. Default: false. */
  isCopy?: boolean;
  /** The files of the engine, such as /etc/resolv.conf. */
  files: BootConfiguration['files'];
  /** Default: the authorities of the image alone. */
  trust?: BootTrust | null;
}

/** The boot configuration of a run, with the meaning that the fields have on other engines. */
export function runConfiguration(run: Run, surroundings: RunSurroundings): BootConfiguration {
  const { spec } = run;
  const {
    image,
    modules,
    network,
    sharedFiles = new Set(),
    isCopy = false,
    files,
    trust = null,
  } = surroundings;
  const workdir = workdirOf(spec, image);
  const hostName = spec.hostname ?? run.sandboxId;
  const environment = environmentOfSandbox(run, image, hostName);
  const mounts = spec.mounts.map((mount, index) => mountOf(mount, index, sharedFiles));
  const uses = (kind: BootMount['kind']) => mounts.some((mount) => mount.kind === kind);
  return {
    hostName,
    user: spec.user ?? (image.user || null),
    workdir,
    environment: textsOf(environment),
    handoff: handoffOf(spec, image, environment),
    arguments: initArguments({
      command: commandOf(spec, image),
      untilExit: spec.endsWithCommand ?? false,
      stopSignal: signalNumber(image.stopSignal ?? undefined),
      workdir,
      agents: true,
    }),
    rlimits: [...DEFAULT_LIMITS, ...spec.rlimits].map(({ resource, soft, hard }) => ({
      resource: RLIMITS.get(resource.toLowerCase())!,
      soft: BigInt.asUintN(64, BigInt(soft)),
      hard: BigInt.asUintN(64, BigInt(hard)),
    })),
    modules: [
      ...(network ? modules.network : []),
      ...(uses('shared') || uses('sharedFile') ? modules.shared : []),
      ...(uses('disk') ? modules.disk : []),
    ],
    isCopy,
    patches: spec.patches.map(patchOf),
    files: [...scriptFiles(spec), ...files],
    mounts,
    network,
    restricted: spec.securityProfile === 'restricted',
    trust,
  };
}

function workdirOf({ workdir }: RunSpec, image: ImageDefaults): string {
  return workdir ?? (image.workdir || '/');
}

/** As container engines of distributions have it: the kernel's own limit is 1024. */
const DEFAULT_LIMITS: RunSpec['rlimits'] = [{ resource: 'nofile', soft: 1_048_576, hard: 1_048_576 }];

/** The variables of the sandbox. A later one replaces one of the same name. */
function environmentOfSandbox(run: Run, { env }: ImageDefaults, hostName: string): Map<string, string> {
  const variables = new Map([['PATH', DEFAULT_PATH]]);
  variables.set('HOSTNAME', hostName);
  for (const entry of env) {
    const [name = '', ...value] = entry.split('=');
    variables.set(name, value.join('='));
  }
  const hasScripts = Object.keys(run.spec.scripts).length > 0;
  if (hasScripts) variables.set('PATH', `${variables.get('PATH')}:${SCRIPTS_DIRECTORY}`);
  const added = environmentOf(run);
  for (const entry of trustVariables(run.spec, [...variables.keys(), ...added.map(({ key }) => key)])) {
    const [name = '', ...value] = entry.split('=');
    variables.set(name, value.join('='));
  }
  for (const { key, value } of added) variables.set(key, value);
  return variables;
}

function textsOf(variables: ReadonlyMap<string, string>): string[] {
  return [...variables].map(([key, value]) => `${key}=${value}`);
}

/**
 * It has the variables of the sandbox, and its own above them. `container` keeps systemd and OpenRC from setting up the
 * devices and file systems of a machine, which are there already.
 */
function handoffOf(
  { init }: RunSpec,
  { stopSignal }: ImageDefaults,
  environment: ReadonlyMap<string, string>,
): BootHandoff | undefined {
  if (!init) return undefined;
  const variables = new Map([['HOME', '/root'], ['container', 'sandkeep'], ...environment]);
  for (const [key = '', value = ''] of init.env ?? []) variables.set(key, value);
  return {
    path: init.cmd,
    arguments: init.args ?? [],
    environment: textsOf(variables),
    stopSignal: stopSignal === null ? null : signalNumber(stopSignal),
  };
}

/** An image's own command is not launched: it is the default of an exec. */
function commandOf({ cmd, entrypoint }: RunSpec, image: ImageDefaults): string[] {
  if (cmd === null || cmd.length === 0) return [];
  return [...(entrypoint ?? image.entrypoint), ...cmd];
}

function scriptFiles(spec: RunSpec): BootConfiguration['files'] {
  return scriptTexts(spec).map(([name, text]) => ({
    path: `${SCRIPTS_DIRECTORY}/${name}`,
    mode: 0o755,
    content: Buffer.from(text),
  }));
}

function patchOf(patch: RunSpec['patches'][number]): BootPatch {
  const none = { mode: null, replace: false, content: Buffer.alloc(0) };
  switch (patch.type) {
    case 'text':
    case 'file': {
      const { path, mode = null, replace } = patch;
      return { operation: 'write', path, mode, replace, content: contentOf(patch) };
    }
    case 'symlink': {
      const { link, target, replace } = patch;
      return { ...none, operation: 'link', path: link, replace, content: Buffer.from(target) };
    }
    case 'mkdir':
      return { ...none, operation: 'directory', path: patch.path, mode: patch.mode ?? null };
    case 'append':
      return { ...none, operation: 'append', path: patch.path, content: Buffer.from(patch.content) };
    case 'remove':
      return { ...none, operation: 'remove', path: patch.path };
    default:
      throw new StartRefusedError(`this runtime has no ${patch.type}`);
  }
}

export function shareTag(index: number): string {
  return `volume${index}`;
}

/** The engine attaches disk images with the serial number `image<index>`. */
function mountOf(mount: RunMount, index: number, sharedFiles: ReadonlySet<string>): BootMount {
  const flags = new Set(
    (['readonly', 'nosuid', 'nodev', 'noexec'] as const).filter((flag) => mount.options?.[flag]),
  );
  const common = { target: mount.guest, flags, fstype: null, options: '' };
  switch (mount.type) {
    case 'tmpfs': {
      const size = mount.size_mib == null ? [] : [`size=${mount.size_mib}m`];
      return { ...common, kind: 'memory', source: '', options: ['mode=1777', ...size].join(',') };
    }
    case 'disk_image':
      return { ...common, kind: 'disk', source: `image${index}`, fstype: mount.fstype ?? null };
    default: {
      const source = shareTag(index);
      return { ...common, kind: sharedFiles.has(source) ? 'sharedFile' : 'shared', source };
    }
  }
}
