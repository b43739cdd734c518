import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { SimulatedCluster } from '../../bench/kubernetes/simulated-cluster.js';
import { sleep } from '../../src/lib/sleep.js';
import { podName, RUN_LABEL, SANDBOX_LABEL, selectorOf } from '../../src/engines/kubernetes/names.js';
import { KubernetesRuntime } from '../../src/engines/kubernetes/runtime.js';
import type { Client } from '../support/client.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';

const PODS = '/api/v1/namespaces/default/pods';
const IMAGE = 'busybox:local';

let cluster: SimulatedCluster;
let directory: string;
let service: TestService;
let client: Client;
beforeAll(async () => {
  directory = mkdtempSync(join(tmpdir(), 'sandkeep-cluster-'));
  cluster = await SimulatedCluster.open({ bookmarkMs: 50 });
  service = await startTestService({ runtime: connect });
  client = await service.newOrg();
});
afterAll(async () => {
  await service.close();
  await cluster.close();
  rmSync(directory, { recursive: true });
});

/**
 * How many times the service took the engine over. It reads the list then, also after a lease that was renewed late.
 */
let takeOvers = 0;

async function connect(instanceId: string): Promise<KubernetesRuntime> {
  const runtime = await connectAlone(cluster, instanceId);
  const takeOver = runtime.takeOver.bind(runtime);
  runtime.takeOver = async () => {
    takeOvers += 1;
    await takeOver();
  };
  return runtime;
}

function connectAlone(to: SimulatedCluster, instanceId: string): Promise<KubernetesRuntime> {
  const kubeconfig = join(directory, `kubeconfig-${instanceId}`);
  to.writeKubeconfig(kubeconfig);
  return KubernetesRuntime.connect(instanceId, { kubeconfig, network: 'trusted', nodeImages: [IMAGE] });
}

let count = 0;

async function create(query: object = {}) {
  count += 1;
  const request = {
    name: `s-${count}`,
    image: { type: 'oci', reference: IMAGE },
    pull_policy: 'never',
    lifecycle: { ends_with_command: true },
    runtime: { entrypoint: [], cmd: ['true'] },
  };
  return client.post('/v1/sandboxes', request, { start: true, ...query });
}

/** A running sandbox, and the name of its Pod. */
async function startOne(): Promise<{ id: string; pod: string }> {
  const { body } = await create({ wait_for: 'running' });
  const faults = service.logs.filter((line) => line.startsWith('{"level":50'));
  expect(body.status, `${JSON.stringify(body)} ${faults.join(' ')}`).toBe('running');
  const pod = cluster.pods().find(({ metadata }) => metadata.labels?.[SANDBOX_LABEL] === body.id);
  return { id: body.id as string, pod: pod!.metadata.name };
}

function listsOfPods({ traffic }: SimulatedCluster): number {
  return traffic.requests['LIST pods'] ?? 0;
}

function counts(): { lists: number; watches: number; takeOvers: number } {
  return { lists: listsOfPods(cluster), watches: cluster.traffic.requests['WATCH pods'] ?? 0, takeOvers };
}

/** The number of lists of the service since then. Each takeover may add two. */
function expectLists(before: { lists: number; takeOvers: number }, count: number): void {
  const lists = listsOfPods(cluster) - before.lists;
  expect(lists).toBeGreaterThanOrEqual(count);
  expect(lists).toBeLessThanOrEqual(count + 2 * (takeOvers - before.takeOvers));
}

test('a list comes in pages of one version', async () => {
  const large = await SimulatedCluster.open({});
  const instanceId = randomUUID();
  const [name, value] = selectorOf(instanceId).split('=') as [string, string];
  const ids = Array.from({ length: 1_200 }, () => [randomUUID(), randomUUID()] as const);
  for (const [sandboxId, runId] of ids) {
    const labels = { [name]: value, [SANDBOX_LABEL]: sandboxId, [RUN_LABEL]: runId };
    large.store.put(PODS, { metadata: { name: podName(runId), labels } });
  }
  const runtime = await connectAlone(large, instanceId);
  const held = await runtime.list();
  expect(held.map(({ runId }) => runId).toSorted()).toEqual(ids.map(([, runId]) => runId).toSorted());
  expect(listsOfPods(large)).toBeLessThanOrEqual(6);
  await runtime.close();
  await large.close();
});

test('a broken watch continues where it was, without another list', async () => {
  const { id, pod } = await startOne();
  const before = counts();
  cluster.dropWatches();
  cluster.nodes.end(PODS, pod, 0);
  await untilStatus(client, id, 'stopped');
  expectLists(before, 0);
  expect(counts().watches).toBeGreaterThan(before.watches);
});

test('bookmarks carry a watch over changes of other objects that the server forgets', async () => {
  const { id, pod } = await startOne();
  const before = counts();
  for (let change = 0; change < 5; change += 1) cluster.store.put('/other', { metadata: { name: 'other' } });
  // Bookmarks alone are sent now.
  const { pods } = (service.runtime as unknown as { parts: { pods: { version: string | undefined } } }).parts;
  await until(
    async () => Promise.resolve(Number(pods.version)),
    (version) => version >= cluster.store.version,
  );
  cluster.store.forgetHistory();
  cluster.dropWatches();
  await until(
    async () => Promise.resolve(counts().watches),
    (now) => now > before.watches,
  );
  cluster.nodes.end(PODS, pod, 0);
  await untilStatus(client, id, 'stopped');
  expectLists(before, 0);
});

test('"410 Gone" leads to one list, which shows what the watch missed', async () => {
  const { id, pod } = await startOne();
  const other = await startOne();
  const before = counts();
  cluster.expireWatches();
  cluster.nodes.end(PODS, pod, 3);
  cluster.store.delete(PODS, other.pod);
  cluster.store.forgetHistory();
  await untilStatus(client, id, 'failed');
  await untilStatus(client, other.id, 'failed');
  expectLists(before, 1);
});

test('repeated events of a watch change nothing twice', async () => {
  cluster.faults.duplicates = true;
  cluster.dropWatches();
  const { id, pod } = await startOne();
  cluster.nodes.end(PODS, pod, 0);
  await untilStatus(client, id, 'stopped');
  cluster.faults.duplicates = false;
  const { body } = await client.get('/v1/events', { resource_id: id });
  const types = body.data.map(({ event_type }: { event_type: string }) => event_type).toSorted();
  expect(types).toEqual(['sandbox_created', 'sandbox_start_requested', 'sandbox_started', 'sandbox_stopped']);
});

test('a create is accepted while no watch is open, and its sandbox starts later', async () => {
  const watches = () => cluster.traffic.requests['WATCH nodes'] ?? 0;
  const before = watches();
  cluster.faults.status = 500;
  cluster.dropWatches();
  await until(
    async () => Promise.resolve(watches()),
    (now) => now > before,
  );
  const { body, status } = await create();
  expect([status, body.status]).toEqual([200, 'starting']);
  cluster.faults.status = undefined;
  await untilStatus(client, body.id, 'running');
});

test('no run ends while the API server answers nothing but errors', async () => {
  const { id, pod } = await startOne();
  cluster.faults.status = 500;
  cluster.dropWatches();
  await sleep(2_500);
  expect((await client.get(`/v1/sandboxes/${id}`)).body.status).toBe('running');
  cluster.faults.status = undefined;
  cluster.nodes.end(PODS, pod, 0);
  const { body } = await untilStatus(client, id, 'stopped');
  expect(body.last_failure_message).toBeNull();
});
