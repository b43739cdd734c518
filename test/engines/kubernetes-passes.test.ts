import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { SimulatedCluster } from '../../bench/kubernetes/simulated-cluster.js';
import { SANDBOX_LABEL } from '../../src/engines/kubernetes/names.js';
import { KubernetesRuntime } from '../../src/engines/kubernetes/runtime.js';
import type { Client } from '../support/client.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const PODS = '/api/v1/namespaces/default/pods';
const IMAGE = 'busybox:local';
const SANDBOXES = 12;
const ALL_EVERY_MS = 60_000;

let cluster: SimulatedCluster;
let directory: string;
let service: TestService;
let client: Client;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'sandkeep-cluster-'));
  cluster = await SimulatedCluster.open();
  const kubeconfig = join(directory, 'kubeconfig');
  cluster.writeKubeconfig(kubeconfig);
  service = await startTestService({
    // A process that loses its lease begins with a pass over all.
    settings: { workerLeaseMs: 120_000 },
    runtime: (instanceId) =>
      KubernetesRuntime.connect(instanceId, { kubeconfig, network: 'trusted', nodeImages: [IMAGE] }),
  });
  client = await service.newOrg();
});
afterAll(async () => {
  await service.close();
  await cluster.close();
  rmSync(directory, { recursive: true });
});

const requestOf = (name: string, lifecycle: object) => ({
  name,
  image: { type: 'oci', reference: IMAGE },
  pull_policy: 'never',
  lifecycle,
  runtime: { entrypoint: [], cmd: ['true'] },
});

async function start(name: string, lifecycle: object): Promise<{ id: string; pod: string }> {
  const query = { start: true, wait_for: 'running', wait_timeout: 60 };
  const { body } = await client.post('/v1/sandboxes', requestOf(name, lifecycle), query);
  expect(body.status, JSON.stringify(body)).toBe('running');
  const pod = cluster.pods().find(({ metadata }) => metadata.labels?.[SANDBOX_LABEL] === body.id);
  return { id: body.id as string, pod: pod!.metadata.name };
}

test('a change is reconciled without a look at the sandboxes that did not change', async () => {
  const started = await Promise.all(
    Array.from({ length: SANDBOXES }, (_, n) => start(`s-${n}`, { ends_with_command: true })),
  );
  const list = vi.spyOn(service.runtime, 'list');
  // The passes of the starts are over. One without a sandbox may stand between two changes.
  await until(
    () => Promise.resolve(list.mock.calls.slice(-3)),
    (calls) => calls.length === 3 && calls.every(([ids]) => ids?.size === 0),
  );
  list.mockClear();
  const begun = performance.now();
  const [changed] = started;
  cluster.nodes.end(PODS, changed!.pod, 0);
  await untilStatus(client, changed!.id, 'stopped');
  const some = list.mock.calls.flatMap(([ids]) => (ids === undefined ? [] : [[...ids]]));
  expect(some.flat()).toContain(changed!.id);
  expect(new Set(some.flat())).toEqual(new Set([changed!.id]));
  const most = 1 + Math.floor((performance.now() - begun) / ALL_EVERY_MS);
  expect(list.mock.calls.length - some.length).toBeLessThanOrEqual(most);
  list.mockRestore();
});

test('a run ends at its longest time although nothing of it changes', async () => {
  const request = requestOf('timed', { max_duration_secs: 2 });
  // A busy machine may answer a wait for "running" after the end.
  const { id } = (await client.post('/v1/sandboxes', request, { start: true })).body;
  await untilStatus(client, id, 'stopped');
  const { body } = await client.get('/v1/events', { resource_id: id, event_type: 'sandbox_stopped' });
  expect(body.data[0].payload.reason).toBe('max_duration_exceeded');
});

test('a lost node ends the runs on it although their Pods do not change', async () => {
  const { id, pod } = await start('on-lost-node', {});
  const found = cluster.store.get(PODS, pod)!;
  const nodeName = found.spec!['nodeName'] as string;
  // The cluster gives the Pod up, and only then is the node known to be lost.
  const deletionTimestamp = new Date().toISOString();
  vi.spyOn(cluster.nodes as unknown as { follow(): Promise<void> }, 'follow').mockResolvedValue();
  cluster.store.put(PODS, { ...found, metadata: { ...found.metadata, deletionTimestamp } });
  const node = cluster.store.get('/api/v1/nodes', nodeName)!;
  const conditions = [{ type: 'Ready', status: 'Unknown', lastHeartbeatTime: deletionTimestamp }];
  cluster.store.put('/api/v1/nodes', { ...node, status: { ...node.status, conditions } });
  const { body } = await untilStatus(client, id, 'failed', 30_000);
  expect(body.last_failure_message).toContain(`the node ${nodeName} of the cluster was lost`);
  vi.restoreAllMocks();
});
