import Docker from 'dockerode';
import { buffer } from 'node:stream/consumers';
import { Readable } from 'node:stream';
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest';
import { microsOf, parseInstant } from '../../src/lib/instant.js';
import type { Client } from '../support/client.js';
import { destroyAll } from '../support/docker-service.js';
import {
  describeKubernetes,
  NODE_IMAGE,
  openNamespace,
  untilRunning,
  type TestNamespace,
} from '../support/kubernetes.js';
import { until, untilStatus } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';
import { ClusterParts } from './support/cluster-parts.js';
import { NodeJournal } from './support/node-journal.js';

/** The directory of a cluster whose kubelets the test may restart. */
const PARTS = process.env['SANDKEEP_TEST_CLUSTER_PARTS'];
const NODE = 1;
/** Whole seconds, and the time between the report of an eviction and the end of the processes, on a busy node. */
const EARLY_BY_MICROS = 60_000_000n;

if (PARTS === undefined) {
  console.warn('evictions for disk are SKIPPED: SANDKEEP_TEST_CLUSTER_PARTS names no cluster');
}

(PARTS === undefined ? describe.skip : describeKubernetes)('evictions by a kubelet, for disk', () => {
  const parts = new ClusterParts(PARTS ?? '');
  const engine = new Docker({ socketPath: parts.socketOf(NODE) });
  let namespace: TestNamespace;
  let service: TestService;
  let client: Client;
  let journal: NodeJournal;
  let restoreKubelet = async () => Promise.resolve();
  /** A node without room removes its images. */
  let image: Buffer;

  beforeAll(async () => {
    image = await buffer(await engine.getImage(NODE_IMAGE).get());
    namespace = await openNamespace();
    journal = new NodeJournal(namespace.namespace);
    await journal.follow(NODE, parts.socketOf(NODE));
    await letOthersTakePods(false);
    service = await startTestService({ ...namespace.service(), settings: { stopGraceMs: 1_000 } });
    client = await service.newOrg();
  });
  afterEach(restore);
  afterAll(async () => {
    journal.close();
    await letOthersTakePods(true);
    await destroyAll(service, client);
    await service.close();
    await namespace.remove();
  });

  test('end the sandboxes of a node whose disk is nearly full', async () => {
    const id = await start('pressed', 'sleep 1000');
    restoreKubelet = await parts.restartWith(`kubelet${NODE}`, '--eviction-hard=nodefs.available<99%');
    // A kubelet that begins may refuse the Pod before it looks for one to evict.
    await expectEvicted(
      id,
      /The node was low on resource: ephemeral-storage|The node had condition: \[DiskPressure\]/,
    );
  });

  test('end a sandbox that writes more than its disk size', async () => {
    // Its measurements come from another engine otherwise.
    restoreKubelet = await parts.restartWith(`kubelet${NODE}`, `--docker=unix://${parts.socketOf(NODE)}`);
    await ready();
    const script = 'dd if=/dev/zero of=/tmp/large bs=1M count=200; sleep 1000';
    const id = await start('writer', script, { disk_size_mib: 50 });
    await expectEvicted(id, /usage exceeds the total limit of containers 50Mi/);
  });

  async function start(name: string, script: string, more: Record<string, unknown> = {}): Promise<string> {
    const asked = await client.post(
      '/v1/sandboxes',
      {
        name,
        image: { type: 'oci', reference: NODE_IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 64, ...more },
        runtime: { cmd: ['sh', '-c', script], entrypoint: [] },
      },
      { start: true },
    );
    return (await untilRunning(client, asked)).id;
  }

  async function expectEvicted(id: string, words: RegExp): Promise<void> {
    const { body } = await untilStatus(client, id, 'failed', 240_000);
    const { body: events } = await client.get('/v1/events', {
      resource_id: id,
      event_type: 'sandbox_failed',
    });
    expect([events.data[0].payload.reason, body.last_failure_message]).toEqual([
      'evicted',
      expect.stringMatching(words),
    ]);
    const { run_id: runId } = events.data[0].payload;
    const endedAt = await until(
      async () => Promise.resolve(journal.runs.get(runId)?.endedAt ?? null),
      (ended) => ended !== null,
    );
    const early = endedAt! - microsOf(parseInstant(body.stopped_at)!);
    expect([early >= 0n, early < EARLY_BY_MICROS], `${early} µs`).toEqual([true, true]);
    await until(
      () => namespace.podsOf(id),
      (found) => found.every(({ metadata }) => (metadata?.finalizers ?? []).length === 0),
    );
    await client.delete(`/v1/sandboxes/${id}`);
    await until(
      () => leftOf(id),
      (found) => found.length === 0,
    );
  }

  async function leftOf(id: string): Promise<(string | undefined)[]> {
    const { core, networking, namespace: name } = namespace;
    const query = { namespace: name, labelSelector: `sandkeep.dev/sandbox=${id}` };
    const lists = await Promise.all([
      core.listNamespacedPod(query),
      core.listNamespacedSecret(query),
      networking.listNamespacedNetworkPolicy(query),
    ]);
    return lists
      .flatMap<{ metadata?: { name?: string } }>(({ items }) => items)
      .map(({ metadata }) => metadata?.name);
  }

  async function restore(): Promise<void> {
    await restoreKubelet();
    restoreKubelet = async () => Promise.resolve();
    await engine.loadImage(Readable.from([image], { objectMode: false }));
    await ready();
  }

  /** The kubelet takes the taint of a pressed node away. */
  async function ready(): Promise<void> {
    await until(
      () => namespace.core.readNode({ name: `node${NODE}` }),
      ({ spec, status }) =>
        !spec?.taints?.some(({ effect }) => effect === 'NoSchedule') &&
        status?.conditions?.find(({ type }) => type === 'Ready')?.status === 'True',
    );
  }

  async function letOthersTakePods(allowed: boolean): Promise<void> {
    const { core, library } = namespace;
    for (const node of parts.nodes.filter((each) => each !== NODE)) {
      await core.patchNode(
        { name: `node${node}`, body: { spec: { unschedulable: !allowed } } },
        library.setHeaderOptions('Content-Type', library.PatchStrategy.MergePatch),
      );
    }
  }
});
