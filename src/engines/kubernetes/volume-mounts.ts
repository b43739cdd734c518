import type {
  V1Affinity,
  V1Container,
  V1PodAffinityTerm,
  V1Volume,
  V1VolumeMount,
} from '@kubernetes/client-node';
import { GUEST_DIRECTORY, INIT_PROGRAM } from '../../guest/programs.js';
import type { RunSpec } from '../../spec/run-spec.js';
import { claimName, mountLabel, OPENING_CONTAINER, PROGRAMS_VOLUME } from './names.js';
import type { AccessChoice } from './volume-choices.js';

const OPENED_DIRECTORY = `${GUEST_DIRECTORY}/volumes`;
/** Each node has a value of its own. */
const EACH_NODE = 'kubernetes.io/hostname';
/** All nodes that run sandboxes have the same value. */
const ALL_NODES = 'kubernetes.io/os';

export function volumesOf({ mounts }: Pick<RunSpec, 'mounts'>): string[] {
  return [...new Set(mounts.flatMap((mount) => (mount.type === 'named' ? [mount.volumeId] : [])))];
}

export function claimVolumes(spec: RunSpec): V1Volume[] {
  return volumesOf(spec).map((volumeId, index) => ({
    name: volumeName(index),
    persistentVolumeClaim: { claimName: claimName(volumeId) },
  }));
}

export function claimMounts(spec: RunSpec): V1VolumeMount[] {
  const ids = volumesOf(spec);
  return spec.mounts.flatMap((mount) =>
    mount.type === 'named'
      ? [
          {
            name: volumeName(ids.indexOf(mount.volumeId)),
            mountPath: mount.guest,
            readOnly: mount.options?.readonly ?? false,
          },
        ]
      : [],
  );
}

/** Lets every user write to empty volumes, before the sandbox starts: new storage belongs to root. */
export function openingContainers(spec: RunSpec, main: V1Container): V1Container[] {
  const mounts = volumesOf(spec).map((_, index) => ({
    name: volumeName(index),
    mountPath: `${OPENED_DIRECTORY}/${index}`,
  }));
  if (mounts.length === 0) return [];
  const { image, imagePullPolicy, resources, volumeMounts = [] } = main;
  return [
    {
      name: OPENING_CONTAINER,
      image: image!,
      imagePullPolicy: imagePullPolicy!,
      resources: resources!,
      command: [INIT_PROGRAM],
      args: mounts.map(({ mountPath }) => `--open=${mountPath}`),
      securityContext: {
        privileged: false,
        allowPrivilegeEscalation: false,
        runAsUser: 0,
        runAsGroup: 0,
        capabilities: { drop: ['ALL'], add: ['DAC_OVERRIDE', 'FOWNER'] },
      },
      volumeMounts: [...volumeMounts.filter(({ name }) => name === PROGRAMS_VOLUME), ...mounts],
    },
  ];
}

export function mountLabels(spec: RunSpec, access: AccessChoice): Record<string, string> {
  return access === 'ReadWriteMany'
    ? {}
    : Object.fromEntries(volumesOf(spec).map((volumeId) => [mountLabel(volumeId), '']));
}

/**
 * Storage of one node at a time. A sandbox with one volume runs on the node of the others that mount it. A rule for
 * several volumes applies only to sandboxes that mount all of them, so a sandbox with several has each for itself.
 */
export function mountAffinity(spec: RunSpec, access: AccessChoice): V1Affinity | undefined {
  const ids = volumesOf(spec);
  if (access === 'ReadWriteMany' || ids.length === 0) return undefined;
  const term = (volumeId: string, topologyKey: string): V1PodAffinityTerm => ({
    labelSelector: { matchExpressions: [{ key: mountLabel(volumeId), operator: 'Exists' }] },
    topologyKey,
  });
  const rule = (topologyKey: string) => ({
    requiredDuringSchedulingIgnoredDuringExecution: ids.map((volumeId) => term(volumeId, topologyKey)),
  });
  return ids.length === 1 ? { podAffinity: rule(EACH_NODE) } : { podAntiAffinity: rule(ALL_NODES) };
}

function volumeName(index: number): string {
  return `volume-${index}`;
}
