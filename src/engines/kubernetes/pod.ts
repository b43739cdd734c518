import type { V1Container, V1EnvVar, V1Pod, V1Volume, V1VolumeMount } from '@kubernetes/client-node';
import {
  GUEST_DIRECTORY,
  initArguments,
  signalNumber,
  PROGRAMS_DIRECTORY,
  INIT_PROGRAM,
} from '../../guest/programs.js';
import { hasFiles, SCRIPTS_DIRECTORY } from '../../engine/run-files.js';
import { StartRefusedError, type Run } from '../../engine/runtime.js';
import type { RunSpec } from '../../spec/run-spec.js';
import {
  CONTAINER,
  FILES_ANNOTATION,
  FILES_AWAITED,
  FINALIZER,
  INSTANCE_LABEL,
  ORG_LABEL,
  podName,
  RUN_LABEL,
  SANDBOX_LABEL,
  userLabels,
} from './names.js';
import { variableKey, type SecretNames } from './start-secrets.js';
import type { AccessChoice } from './volume-choices.js';
import { claimMounts, claimVolumes, mountAffinity, mountLabels, openingContainers } from './volume-mounts.js';

/** The same as on Docker: for package managers, and for daemons that drop privileges. */
const CAPABILITIES = ['CHOWN', 'DAC_OVERRIDE', 'FOWNER', 'KILL', 'SETGID', 'SETUID'];
/** How long a Pod stays on a node that does not answer. Without it the cluster waits for five minutes. */
const NODE_LOST_SECS = 30;
const KNOWN_USER = /^(\d{1,10}|root)(?::(\d{1,10}|root))?$/;

/** A directory that holds this file when the command may start. */
const START_DIRECTORY = `${GUEST_DIRECTORY}/start`;
export const START_FILE = `${START_DIRECTORY}/now`;

export interface PodOptions {
  instanceId: string;
  /** The processor, in the words of Kubernetes. */
  architecture: string;
  programs: V1Volume;
  secretNames: SecretNames;
  runtimeClass: string | undefined;
  restrictedRuntimeClass: string | undefined;
  defaultDiskMib: number;
  /** The images that the operator put on the nodes, for every organization. */
  nodeImages: readonly string[];
  access: AccessChoice;
  cpuOvercommit: number;
  sharedCpuMillis: number;
  bandwidthMbits: number;
}

export function podOf({ orgId, sandboxId, runId, spec }: Run, options: PodOptions): V1Pod {
  const { labels, annotations } = userLabels(spec.labels);
  const { pull } = options.secretNames;
  const runtimeClass =
    (spec.securityProfile === 'restricted' ? options.restrictedRuntimeClass : undefined) ??
    options.runtimeClass;
  const mounts = [...tmpfsOf(spec), ...fileMountsOf(spec)];
  const affinity = mountAffinity(spec, options.access);
  const main = containerOf(spec, options, [
    { name: options.programs.name, mountPath: PROGRAMS_DIRECTORY, readOnly: true },
    ...mounts.map(({ mount }) => mount),
    ...claimMounts(spec),
  ]);
  const initContainers = openingContainers(spec, main);
  return {
    metadata: {
      name: podName(runId),
      labels: {
        ...labels,
        ...mountLabels(spec, options.access),
        'app.kubernetes.io/managed-by': 'sandkeep',
        [INSTANCE_LABEL]: options.instanceId,
        [ORG_LABEL]: orgId,
        [SANDBOX_LABEL]: sandboxId,
        [RUN_LABEL]: runId,
      },
      annotations: {
        ...annotations,
        ...bandwidthAnnotations(options.bandwidthMbits),
        ...(hasFiles(spec) ? { [FILES_ANNOTATION]: FILES_AWAITED } : {}),
      },
      finalizers: [FINALIZER],
    },
    spec: {
      restartPolicy: 'Never',
      automountServiceAccountToken: false,
      enableServiceLinks: false,
      hostname: spec.hostname ?? sandboxId,
      securityContext: { seccompProfile: { type: 'RuntimeDefault' } },
      nodeSelector: { 'kubernetes.io/os': 'linux', 'kubernetes.io/arch': options.architecture },
      tolerations: ['not-ready', 'unreachable'].map((state) => ({
        key: `node.kubernetes.io/${state}`,
        operator: 'Exists',
        effect: 'NoExecute',
        tolerationSeconds: NODE_LOST_SECS,
      })),
      ...(runtimeClass === undefined ? {} : { runtimeClassName: runtimeClass }),
      ...(pull === undefined ? {} : { imagePullSecrets: [{ name: pull }] }),
      ...(affinity === undefined ? {} : { affinity }),
      ...(initContainers.length === 0 ? {} : { initContainers }),
      containers: [main],
      volumes: [options.programs, ...mounts.map(({ volume }) => volume), ...claimVolumes(spec)],
    },
  };
}

/** The network plugin reads them, if it can bound the bandwidth. */
function bandwidthAnnotations(mbits: number): Record<string, string> {
  if (mbits === 0) return {};
  const rate = `${mbits}M`;
  return { 'kubernetes.io/ingress-bandwidth': rate, 'kubernetes.io/egress-bandwidth': rate };
}

function containerOf(spec: RunSpec, options: PodOptions, volumeMounts: V1VolumeMount[]): V1Container {
  const { vcpus } = spec;
  const cpu = vcpus === 0 ? `${options.sharedCpuMillis}m` : String(vcpus);
  const amounts = { cpu, memory: `${spec.memoryMib}Mi` };
  const diskMib = spec.diskMib ?? (options.defaultDiskMib > 0 ? options.defaultDiskMib : null);
  const limit = diskMib === null ? {} : { 'ephemeral-storage': `${diskMib}Mi` };
  // A default size bounds the disk, and reserves nothing.
  const request =
    diskMib === null ? {} : { 'ephemeral-storage': spec.diskMib === null ? '0' : `${diskMib}Mi` };
  return {
    name: CONTAINER,
    image: spec.image,
    imagePullPolicy: pullPolicyOf(spec, options.nodeImages),
    command: [INIT_PROGRAM],
    args: initArguments({
      command: commandOf(spec),
      untilExit: spec.endsWithCommand ?? false,
      stopSignal: signalNumber(undefined),
      workdir: spec.workdir,
      ...(hasFiles(spec) ? { awaited: START_FILE } : {}),
      ...(appendsPath(spec) ? { appendedPath: SCRIPTS_DIRECTORY } : {}),
    }).map(literal),
    env: envOf(spec, options.secretNames.variables),
    // The node would make a missing directory for root, and no command could begin after its removal.
    ...(spec.workdir === null ? {} : { workingDir: '/' }),
    // A shell or interpreter without a script would end without standard input.
    stdin: true,
    resources: {
      limits: { ...amounts, ...limit },
      requests: { ...amounts, cpu: cpuRequest(vcpus, options.cpuOvercommit), ...request },
    },
    securityContext: {
      privileged: false,
      allowPrivilegeEscalation: false,
      capabilities: { drop: ['ALL'], add: spec.securityProfile === 'restricted' ? [] : CAPABILITIES },
      ...userOf(spec),
    },
    terminationMessagePolicy: 'File',
    volumeMounts,
  };
}

/** Kubernetes has nothing smaller than a thousandth of a CPU. */
function cpuRequest(vcpus: number, overcommit: number): string {
  // A request of nothing has the smallest weight, and takes no room of a node.
  if (vcpus === 0) return '0';
  return overcommit === 1 ? String(vcpus) : `${Math.max(1, Math.round((vcpus * 1_000) / overcommit))}m`;
}

/** A node serves an image that it has without asking the registry, also to an organization without access to it. */
function pullPolicyOf({ image, pullPolicy }: RunSpec, nodeImages: readonly string[]): string {
  if (nodeImages.includes(image)) {
    return { always: 'Always', if_missing: 'IfNotPresent', never: 'Never' }[pullPolicy];
  }
  if (pullPolicy !== 'never') return 'Always';
  throw new StartRefusedError(
    `the image ${image} is not one of those that the operator keeps on the nodes, and pull_policy is never: use if_missing, or ask for --kubernetes-node-images`,
  );
}

function commandOf({ cmd, entrypoint }: RunSpec): string[] {
  return cmd === null || cmd.length === 0 ? [] : [...(entrypoint ?? []), ...cmd];
}

/**
 * The last value of a name counts. Secret values are in the Secret `secret`: everybody who lists Pods can read their
 * fields.
 */
function envOf(spec: RunSpec, secret: string | undefined): V1EnvVar[] {
  return [...new Map(spec.env.map((variable) => [variable.key, variable])).values()].map((variable) => {
    const { key: name, value } = variable;
    if (variable.secret !== true) return { name, value: literal(value) };
    return { name, valueFrom: { secretKeyRef: { name: secret!, key: variableKey(spec, name) } } };
  });
}

/** Kubernetes replaces `$(NAME)` in commands and environments. */
function literal(text: string): string {
  return text.replaceAll('$', '$$$$');
}

/** Inverts `literal`. */
export function unescaped(text: string): string {
  return text.replaceAll('$$', '$');
}

function userOf({ user }: RunSpec): { runAsUser?: number; runAsGroup?: number } {
  const [, uid, gid] = KNOWN_USER.exec(user ?? '') ?? [];
  return {
    ...(uid === undefined ? {} : { runAsUser: idOf(uid) }),
    ...(gid === undefined ? {} : { runAsGroup: idOf(gid) }),
  };
}

function idOf(name: string): number {
  return name === 'root' ? 0 : Number(name);
}

function appendsPath({ env, scripts }: Pick<RunSpec, 'env' | 'scripts'>): boolean {
  return Object.keys(scripts).length > 0 && !env.some(({ key }) => key === 'PATH');
}

/** The directories that the service fills before the command starts. */
function fileMountsOf(spec: RunSpec): PodMount[] {
  if (!hasFiles(spec)) return [];
  return [
    ['start', START_DIRECTORY] as const,
    ...(Object.keys(spec.scripts).length > 0 ? [['scripts', SCRIPTS_DIRECTORY] as const] : []),
  ].map(([name, mountPath]) => ({ volume: { name, emptyDir: {} }, mount: { name, mountPath } }));
}

interface PodMount {
  volume: V1Volume;
  mount: V1VolumeMount;
}

function tmpfsOf({ mounts }: RunSpec): PodMount[] {
  return mounts.flatMap((mount, index) => {
    if (mount.type !== 'tmpfs') return [];
    const name = `tmpfs-${index}`;
    const size = mount.size_mib == null ? {} : { sizeLimit: `${mount.size_mib}Mi` };
    return [
      {
        volume: { name, emptyDir: { medium: 'Memory', ...size } },
        mount: { name, mountPath: mount.guest, readOnly: mount.options?.readonly ?? false },
      },
    ];
  });
}
