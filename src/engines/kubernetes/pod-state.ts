import type { V1ContainerStatus, V1Pod } from '@kubernetes/client-node';
import { instantFromMicros, microsOf, parseInstant, type Instant } from '../../lib/instant.js';
import type { Exit, RunFailure } from '../../engine/runtime.js';
import { CONTAINER, FILES_ANNOTATION, FILES_AWAITED, KUBELET } from './names.js';
import { explainEnd, explainWaiting } from './reasons.js';

export type PodState =
  /** `noRoom`: the words of the scheduler. */
  | { kind: 'pending'; noRoom: string | null }
  /** It will not start, or only after a change outside. */
  | { kind: 'failing'; message: string }
  /**
   * It has ended, and never started, or its node has removed the record of its containers: with `failure`, and the time
   * before it.
   */
  | { kind: 'dead'; message: string | null; failure: RunFailure | null; finishedAt: Instant | null }
  /** Its command waits for the files of the request. */
  | { kind: 'unpopulated' }
  | { kind: 'running'; startedAt: Instant }
  | {
      kind: 'ended';
      /** Null: the record of the container is lost. */
      startedAt: Instant | null;
      finishedAt: Instant | null;
      exit: Exit | null;
      failure: RunFailure | null;
    };

/** A node that does not answer any more. */
export interface NodeLoss {
  lastSeen: Instant | null;
}

/** Reads the state of a run from its Pod. `loss`: its node is lost. */
export function stateOf(pod: V1Pod, loss?: NodeLoss): PodState {
  const { metadata, status } = pod;
  const container = status?.containerStatuses?.find(({ name }) => name === CONTAINER);
  const startedAt = startOf(container);
  const isGoing = metadata?.deletionTimestamp !== undefined;
  if (isForgotten(container)) {
    const exit = { code: FORGOTTEN_CODE, outOfMemory: false };
    const failure = explainEnd(pod, isGoing);
    return { kind: 'ended', startedAt: null, finishedAt: null, exit, failure };
  }
  if (startedAt === undefined) return notStarted(pod, container, loss);
  const terminated = container?.state?.terminated;
  if (metadata?.annotations?.[FILES_ANNOTATION] === FILES_AWAITED) {
    const isOver = terminated !== undefined || (loss !== undefined && isGoing);
    return isOver
      ? { kind: 'dead', message: explainEnd(pod, isGoing)?.message ?? null, failure: null, finishedAt: null }
      : { kind: 'unpopulated' };
  }
  if (terminated) {
    return {
      kind: 'ended',
      startedAt,
      finishedAt: instantOf(terminated.finishedAt) ?? null,
      exit: { code: terminated.exitCode, outOfMemory: terminated.reason === 'OOMKilled' },
      failure: explainEnd(pod, isGoing),
    };
  }
  if (loss && isGoing) {
    const name = pod.spec?.nodeName ?? '';
    const message = `the node ${name} of the cluster was lost`;
    return {
      kind: 'ended',
      startedAt,
      finishedAt: loss.lastSeen,
      exit: null,
      failure: { reason: 'node_lost', message },
    };
  }
  return { kind: 'running', startedAt };
}

function notStarted(
  pod: V1Pod,
  container: V1ContainerStatus | undefined,
  loss: NodeLoss | undefined,
): PodState {
  const { metadata, status } = pod;
  const failing = explainWaiting(pod, container);
  const isOver = status?.phase === 'Failed' || status?.phase === 'Succeeded';
  // The API server sets the grace to zero when no node has anything of the Pod any more.
  const isGone =
    metadata?.deletionTimestamp !== undefined &&
    (metadata.deletionGracePeriodSeconds === 0 || loss !== undefined);
  if (isOver || isGone) {
    const failure = explainEnd(pod, metadata?.deletionTimestamp !== undefined);
    return { kind: 'dead', message: failing ?? null, failure, finishedAt: isOver ? lastReportOf(pod) : null };
  }
  if (failing !== undefined) return { kind: 'failing', message: failing };
  const scheduled = status?.conditions?.find(({ type }) => type === 'PodScheduled');
  const isShort = scheduled?.status === 'False' && scheduled.reason === 'Unschedulable';
  return { kind: 'pending', noRoom: isShort ? (scheduled.message ?? 'no node has room') : null };
}

/** A node reports an eviction before it ends the containers. */
function lastReportOf({ metadata }: V1Pod): Instant | null {
  const times = (metadata?.managedFields ?? []).map(({ manager, time }) =>
    manager === KUBELET ? instantOf(time) : undefined,
  );
  return times.findLast((time) => time !== undefined) ?? null;
}

/**
 * The cluster records whole seconds. A start counts from the end of its second, so that no run is billed longer than it
 * was.
 */
function startOf(container: V1ContainerStatus | undefined): Instant | undefined {
  const { running, terminated } = container?.state ?? {};
  const recorded = instantOf(running?.startedAt ?? terminated?.startedAt);
  return recorded === undefined ? undefined : instantFromMicros(microsOf(recorded) + SECOND);
}

/**
 * A node forgets a container that ends while its kubelet does not run. The kubelet then reports an end without times:
 * as the state, and up to Kubernetes 1.21 as the last one beside a state that waits.
 */
function isForgotten(container: V1ContainerStatus | undefined): boolean {
  const { state, lastState } = container ?? {};
  if (state?.running) return false;
  return [state, lastState].some((one) => one?.terminated?.reason === 'ContainerStatusUnknown');
}

const FORGOTTEN_CODE = 137;
const SECOND = 1_000_000n;
/** The cluster writes the first second of 1970, or of the year 1, for a container that never started. */
const NEVER = Date.UTC(1971, 0);

/** The client gives dates, and a watch gives texts. */
export function instantOf(time: Date | string | undefined): Instant | undefined {
  if (time === undefined) return undefined;
  const date = new Date(time);
  return date.getTime() < NEVER ? undefined : parseInstant(date.toISOString());
}
