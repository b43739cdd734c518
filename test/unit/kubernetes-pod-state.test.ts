import type { V1ContainerState, V1Pod } from '@kubernetes/client-node';
import { describe, expect, test } from 'vitest';
import { stateOf } from '../../src/engines/kubernetes/pod-state.js';

const second = (n: number) => new Date(Date.UTC(2026, 0, 1, 12, 0, n));

function pod(
  state: V1ContainerState | undefined,
  { status = {}, metadata = {}, lastState }: { status?: object; metadata?: object; lastState?: object } = {},
): V1Pod {
  const common = { image: 'image', imageID: '', ready: false, restartCount: 0 };
  const containerStatuses =
    state === undefined ? [] : [{ ...common, name: 'sandbox', state, ...(lastState ? { lastState } : {}) }];
  return {
    metadata,
    spec: { nodeName: 'node-1', containers: [{ name: 'sandbox', image: 'image' }] },
    status: { containerStatuses, ...status },
  };
}

const terminated = (more: object = {}) => ({
  terminated: { exitCode: 0, startedAt: second(1), finishedAt: second(9), ...more },
});
const deleted = { deletionTimestamp: second(8), deletionGracePeriodSeconds: 5 };

describe('the state of a run in a cluster', () => {
  test('bills from the end of the second of the start to the begin of the second of the end', () => {
    expect(stateOf(pod({ running: { startedAt: second(1) } }))).toEqual({
      kind: 'running',
      startedAt: '2026-01-01T12:00:02.000000Z',
    });
    expect(stateOf(pod(terminated({ exitCode: 3 })))).toEqual({
      kind: 'ended',
      startedAt: '2026-01-01T12:00:02.000000Z',
      finishedAt: '2026-01-01T12:00:09.000000Z',
      exit: { code: 3, outOfMemory: false },
      failure: null,
    });
  });

  test('reads times of a watch, which are texts', () => {
    const startedAt = second(1).toISOString() as unknown as Date;
    expect(stateOf(pod({ running: { startedAt } }))).toEqual(
      stateOf(pod({ running: { startedAt: second(1) } })),
    );
  });

  test.each([
    ['Evicted', { reason: 'evicted', message: 'the node evicted the sandbox: its disk was full' }],
    ['Preempting', { reason: 'preempted', message: 'the node removed the sandbox for a more important Pod' }],
    ['NodeLost', { reason: 'node_lost', message: 'the node of the cluster was lost' }],
  ])('names the reason %s of its end', (reason, failure) => {
    const status = { phase: 'Failed', reason, message: 'its disk was full' };
    expect(stateOf(pod(terminated(), { status }))).toMatchObject({ kind: 'ended', failure });
  });

  test.each([
    ['PreemptionByScheduler', 'preempted'],
    ['DeletionByTaintManager', 'node_lost'],
    ['EvictionByEvictionAPI', 'evicted'],
  ])('names the reason %s of later clusters', (reason, expected) => {
    const status = { conditions: [{ type: 'DisruptionTarget', status: 'True', reason }] };
    const found = stateOf(pod(terminated(), { status, metadata: deleted }));
    expect(found).toMatchObject({ kind: 'ended', failure: { reason: expected } });
  });

  test('ends with the last sign of life of a lost node, once the cluster gives the Pod up', () => {
    const running = { running: { startedAt: second(1) } };
    const loss = { lastSeen: '2026-01-01T12:00:05.000000Z' };
    expect(stateOf(pod(running), loss).kind).toBe('running');
    expect(stateOf(pod(running, { metadata: deleted }), loss)).toMatchObject({
      kind: 'ended',
      finishedAt: loss.lastSeen,
      exit: null,
      failure: { reason: 'node_lost', message: 'the node node-1 of the cluster was lost' },
    });
  });

  const forgotten = { terminated: { exitCode: 137, reason: 'ContainerStatusUnknown' } };
  test.each([
    ['as its state', forgotten, undefined],
    ['as its last state', { waiting: { reason: 'ContainerCreating' } }, forgotten],
  ] as const)('has ended when the node has forgotten it, and says so %s', (_, state, lastState) => {
    const ended = {
      kind: 'ended',
      startedAt: null,
      finishedAt: null,
      exit: { code: 137, outOfMemory: false },
    };
    const status = { phase: 'Failed' };
    const more = { status, ...(lastState ? { lastState } : {}) };
    expect(stateOf(pod(state, more))).toEqual({ ...ended, failure: null });
    const failure = { reason: 'deleted_by_cluster' };
    expect(stateOf(pod(state, { ...more, metadata: deleted }))).toMatchObject({ ...ended, failure });
  });

  test('is that of a container that runs again after the node had forgotten it', () => {
    const running = { running: { startedAt: second(1) } };
    expect(stateOf(pod(running, { lastState: forgotten })).kind).toBe('running');
  });

  test('keeps the reason and the time of an eviction by a kubelet that removes the record of the container', () => {
    const status = { phase: 'Failed', reason: 'Evicted', message: 'its disk was full' };
    const managedFields = [
      { manager: 'kubelet', time: second(7) },
      { manager: 'sandkeep', time: second(9) },
    ];
    const message = 'the node evicted the sandbox: its disk was full';
    expect(stateOf(pod(undefined, { status, metadata: { managedFields } }))).toEqual({
      kind: 'dead',
      message,
      failure: { reason: 'evicted', message },
      finishedAt: '2026-01-01T12:00:07.000000Z',
    });
  });

  test('that never started is dead only when no node can start it any more', () => {
    const waiting = { waiting: { reason: 'ContainerCreating' } };
    expect(stateOf(pod(waiting)).kind).toBe('pending');
    expect(stateOf(pod(waiting, { metadata: deleted })).kind).toBe('pending');
    const gone = { ...deleted, deletionGracePeriodSeconds: 0 };
    expect(stateOf(pod(waiting, { metadata: gone }))).toMatchObject({ kind: 'dead', message: null });
    const status = { phase: 'Failed', reason: 'OutOfcpu', message: 'Pod requires cpu' };
    expect(stateOf(pod(undefined, { status }))).toMatchObject({
      kind: 'dead',
      message: 'the node had too few vCPUs left',
    });
  });

  test('fails for an image that cannot be pulled, in words of its own', () => {
    const said =
      'rpc error: pull access denied for image at registry.internal:5000, repository does not exist';
    const state = stateOf(pod({ waiting: { reason: 'ErrImagePull', message: said } }));
    const words = 'the registry has no such image, or requires credentials';
    expect(state).toEqual({ kind: 'failing', message: `the image image cannot be pulled: ${words}` });
  });

  test('shows why the scheduler has no room', () => {
    const message = '0/2 nodes are available: 2 Insufficient memory.';
    const condition = { type: 'PodScheduled', status: 'False', reason: 'Unschedulable', message };
    expect(stateOf(pod(undefined, { status: { conditions: [condition] } }))).toEqual({
      kind: 'pending',
      noRoom: message,
    });
  });
});
