import type { KubernetesObject } from '@kubernetes/client-node';

export const CONTAINER = 'sandbox';
/** The name of the kubelet in the record of who set which field. */
export const KUBELET = 'kubelet';
/** Prepares the volumes of a sandbox, and ends before it starts. */
export const OPENING_CONTAINER = 'volumes';
export const PROGRAMS_VOLUME = 'sandkeep-programs';
/** Keeps the record of a run until its end is in the store. */
export const FINALIZER = 'sandkeep.dev/run-record';

export const INSTANCE_LABEL = 'sandkeep.dev/instance';
export const ORG_LABEL = 'sandkeep.dev/org';
export const SANDBOX_LABEL = 'sandkeep.dev/sandbox';
export const RUN_LABEL = 'sandkeep.dev/run';
export const VOLUME_LABEL = 'sandkeep.dev/volume';
/** On Pods, followed by the id of a volume that only one node can mount. */
const MOUNT_LABEL = 'volume.sandkeep.dev/';
/** Other programs of the cluster react to labels, and must not obey those of a tenant. */
const USER_LABEL = 'label.sandkeep.dev/';
/** The labels that Kubernetes cannot have as labels, as JSON. */
const OTHER_LABELS = 'sandkeep.dev/labels';

/** Whether the files of the request are in place: the command waits for them. */
export const FILES_ANNOTATION = 'sandkeep.dev/files';
export const FILES_AWAITED = 'awaited';
export const FILES_IN_PLACE = 'in-place';

/** In the first namespace, and copied to those of organizations: it says who has which rights there. */
export const ORGANIZATION_BINDING = 'sandkeep-organization';

const LABEL_TEXT = /^[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$/;

export interface Place {
  name: string;
  namespace: string;
}

export function placeOf({ metadata }: KubernetesObject): Place {
  return { name: metadata!.name!, namespace: metadata!.namespace! };
}

export function podName(runId: string): string {
  return `sandkeep-${runId}`;
}

export function claimName(volumeId: string): string {
  return `sandkeep-volume-${volumeId}`;
}

export function mountLabel(volumeId: string): string {
  return MOUNT_LABEL + volumeId;
}

export function selectorOf(instanceId: string): string {
  return `${INSTANCE_LABEL}=${instanceId}`;
}

/** The labels of a tenant under a prefix: as labels where Kubernetes takes them, else in an annotation. */
export function userLabels(labels: Record<string, string>): {
  labels: Record<string, string>;
  annotations: Record<string, string>;
} {
  const entries = Object.entries(labels);
  const fits = ([key, value]: [string, string]) =>
    LABEL_TEXT.test(key) && (value === '' || LABEL_TEXT.test(value));
  const others = entries.filter((entry) => !fits(entry));
  return {
    labels: Object.fromEntries(entries.filter(fits).map(([key, value]) => [USER_LABEL + key, value])),
    annotations: others.length === 0 ? {} : { [OTHER_LABELS]: JSON.stringify(Object.fromEntries(others)) },
  };
}
