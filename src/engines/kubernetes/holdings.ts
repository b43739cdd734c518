import type { V1Pod } from '@kubernetes/client-node';
import type { Holding } from '../../engine/runtime.js';
import { imageDigestOf } from './image-digest.js';
import { FINALIZER, ORG_LABEL, RUN_LABEL, SANDBOX_LABEL } from './names.js';
import type { PodState } from './pod-state.js';

export function idsOf({ metadata }: V1Pod): { orgId: string; sandboxId: string; runId: string } {
  const { labels = {} } = metadata ?? {};
  return {
    orgId: labels[ORG_LABEL] ?? '',
    sandboxId: labels[SANDBOX_LABEL] ?? '',
    runId: labels[RUN_LABEL] ?? '',
  };
}

export function hasEnded({ kind }: PodState): boolean {
  return kind === 'ended' || kind === 'dead';
}

export function isStarting({ kind }: PodState): boolean {
  return kind === 'pending' || kind === 'failing';
}

export function holdingOf(pod: V1Pod, state: PodState): Holding {
  const ids = idsOf(pod);
  const none = { startedAt: null, finishedAt: null, exit: null };
  const keepsRecord = hasEnded(state) && (pod.metadata?.finalizers ?? []).includes(FINALIZER);
  switch (state.kind) {
    case 'pending':
      return { ...ids, ...none, state: 'starting', noRoom: state.noRoom };
    case 'failing':
    case 'unpopulated':
      return { ...ids, ...none, state: 'prepared' };
    case 'dead': {
      const { failure, finishedAt } = state;
      return { ...ids, ...none, state: 'prepared', finishedAt, failure, keepsRecord };
    }
    case 'running':
      return {
        ...ids,
        ...none,
        state: 'running',
        startedAt: state.startedAt,
        imageDigest: imageDigestOf(pod),
      };
    case 'ended': {
      const { startedAt, finishedAt, exit, failure } = state;
      const imageDigest = imageDigestOf(pod);
      return { ...ids, state: 'exited', startedAt, finishedAt, exit, failure, imageDigest, keepsRecord };
    }
  }
}
