import type { V1ContainerStatus, V1Pod } from '@kubernetes/client-node';
import type { RunFailure } from '../../engine/runtime.js';

/** The reasons of a waiting container that end a start, with words for callers. */
const WAITING: Record<string, (image: string, said: string) => string> = {
  ErrImagePull: (image, said) => `the image ${image} cannot be pulled: ${pullProblem(said)}`,
  ImagePullBackOff: (image, said) => `the image ${image} cannot be pulled: ${pullProblem(said)}`,
  InvalidImageName: (image) => `the cluster does not accept ${image} as the name of an image`,
  ErrImageNeverPull: (image) => `the image ${image} is not on the node, and pull_policy is never`,
  ImageInspectError: (image) => `the node cannot read the image ${image}`,
  RegistryUnavailable: (image) => `the registry of ${image} cannot be reached from the node`,
  CreateContainerConfigError: () => 'the cluster refused the configuration of the sandbox',
  CreateContainerError: (_, said) => startProblem(said),
  RunContainerError: (_, said) => startProblem(said),
  StartError: (_, said) => startProblem(said),
  ContainerCannotRun: (_, said) => startProblem(said),
};

/**
 * The API server lets a node read a Secret once it knows that a Pod of the node names it. A node that is earlier pulls
 * without the credentials, and is refused. It tries again after 10 s.
 */
const FIRST_ATTEMPT_MS = 8_000;
/** A node that waits before its next attempt no longer says why the last one failed. */
const ATTEMPTS_MS = 60_000;

/** Whether the pull may have failed only because the node could not read the credentials yet. */
function mayLackSecret(
  { metadata, spec }: V1Pod,
  reason: string | undefined,
  said: string,
  nowMs: number,
): boolean {
  if ((spec?.imagePullSecrets ?? []).length === 0 || metadata?.creationTimestamp === undefined) return false;
  const ageMs = nowMs - new Date(metadata.creationTimestamp).getTime();
  // A clock that is behind that of the cluster tells nothing.
  if (ageMs < -FIRST_ATTEMPT_MS) return false;
  if (reason === 'ImagePullBackOff') return ageMs < ATTEMPTS_MS;
  return reason === 'ErrImagePull' && REFUSED.test(said) && ageMs < FIRST_ATTEMPT_MS;
}

/** The reason why a container that has not started never will. Undefined: it may. */
export function explainWaiting(
  pod: V1Pod,
  container: V1ContainerStatus | undefined,
  nowMs = Date.now(),
): string | undefined {
  const { spec, status } = pod;
  const opening = status?.initContainerStatuses?.[0];
  const { waiting, terminated } = (opening?.state?.waiting ? opening : container)?.state ?? {};
  const { reason, message } = waiting ?? terminated ?? {};
  const image = spec?.containers[0]?.image ?? '';
  if (mayLackSecret(pod, reason, message ?? '', nowMs)) return undefined;
  const explain = WAITING[reason ?? ''];
  if (explain) return explain(image, message ?? '');
  if (status?.phase !== 'Failed') return undefined;
  if ((opening?.state?.terminated?.exitCode ?? 0) !== 0) {
    return 'the node could not prepare the volumes of the sandbox';
  }
  const end = ENDS[status.reason ?? ''];
  return (
    end?.(status.message ?? '') ??
    `the node refused the sandbox: ${status.message ?? status.reason ?? 'it gave no reason'}`
  );
}

const REFUSED = /unauthorized|denied|authentication|forbidden|no basic auth/i;

const PULL_PROBLEMS: [said: RegExp, words: string][] = [
  [/manifest unknown|not found|does not exist/i, 'the registry has no such image, or requires credentials'],
  [REFUSED, 'the registry refuses the credentials, or requires some'],
  [/x509|certificate|http: server gave HTTP response/i, 'the registry has no valid certificate for https'],
  [/toomanyrequests|rate limit/i, 'the registry allows no more pulls for now'],
  [/no matching manifest|no match for platform/i, 'it does not exist for the platform of the node'],
  [/no space left/i, 'the disk of the node is full'],
  [
    /no such host|dial tcp|timeout|deadline|connection refused|unreachable|i\/o|EOF/i,
    'the registry cannot be reached from the node',
  ],
];

function pullProblem(said: string): string {
  return PULL_PROBLEMS.find(([pattern]) => pattern.test(said))?.[1] ?? 'the registry gives no valid answer';
}

function startProblem(said: string): string {
  if (/chdir to cwd/.test(said)) return 'runtime.workdir cannot be entered';
  if (/rootfs at|mount/.test(said)) return 'a mount cannot be placed in the image: check mounts[].guest';
  return 'the node refused to start the sandbox; the operator finds the reason in the events of the Pod';
}

/** The reasons of a Pod that the cluster ended, with words for callers. */
const ENDS: Record<string, (said: string) => string> = {
  Evicted: (said) => `the node evicted the sandbox: ${said.trim() || 'it lacked resources'}`,
  Preempting: () => 'the node removed the sandbox for a more important Pod',
  Preempted: () => 'the scheduler removed the sandbox for a more important Pod',
  Terminated: () => 'the node shut down',
  Shutdown: () => 'the node shut down',
  NodeShutdown: () => 'the node shut down',
  NodeLost: () => 'the node of the cluster was lost',
  OutOfcpu: () => 'the node had too few vCPUs left',
  OutOfmemory: () => 'the node had too little memory left',
};

const END_REASONS: Record<string, RunFailure['reason']> = {
  Evicted: 'evicted',
  Preempting: 'preempted',
  Preempted: 'preempted',
  NodeLost: 'node_lost',
};

/** The reasons of the condition DisruptionTarget, which clusters have from 1.26 on. */
const DISRUPTIONS: Record<string, RunFailure> = {
  PreemptionByScheduler: { reason: 'preempted', message: ENDS['Preempted']!('') },
  PreemptionByKubeScheduler: { reason: 'preempted', message: ENDS['Preempted']!('') },
  DeletionByTaintManager: { reason: 'node_lost', message: ENDS['NodeLost']!('') },
  DeletionByPodGC: { reason: 'node_lost', message: ENDS['NodeLost']!('') },
  EvictionByEvictionAPI: {
    reason: 'evicted',
    message: 'the sandbox was evicted from its node, as when a node is drained',
  },
  TerminationByKubelet: {
    reason: 'evicted',
    message: 'the node ended the sandbox, for lack of resources or to shut down',
  },
};

/** The reason for an end that process 1 did not choose. `isGoing`: somebody deleted the Pod. */
export function explainEnd({ status }: V1Pod, isGoing: boolean): RunFailure | null {
  const end = ENDS[status?.reason ?? ''];
  if (end) {
    return { reason: END_REASONS[status?.reason ?? ''] ?? 'evicted', message: end(status?.message ?? '') };
  }
  const disruption = status?.conditions?.find(
    ({ type, status: holds }) => type === 'DisruptionTarget' && holds === 'True',
  );
  const known = DISRUPTIONS[disruption?.reason ?? ''];
  if (known) return known;
  return isGoing ? DELETED : null;
}

const DELETED: RunFailure = {
  reason: 'deleted_by_cluster',
  message: 'the cluster deleted the Pod of the sandbox, as when a node is drained',
};
