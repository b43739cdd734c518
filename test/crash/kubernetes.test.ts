import type { V1Eviction } from '@kubernetes/client-node';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sleep } from '../../src/lib/sleep.js';
import { readBudget, readSeed } from '../support/budget.js';
import { makeClient, type Client } from '../support/client.js';
import { describeKubernetes, NODE_IMAGE, openNamespace, type TestNamespace } from '../support/kubernetes.js';
import {
  cleanUp,
  inDatabase,
  kill,
  launch,
  makeFolder,
  ready,
  stop,
  until,
  type Served,
} from '../support/processes.js';
import { checkCluster, type ClusterRecord, type StoredSandbox } from './support/check-cluster.js';
import { ClusterParts } from './support/cluster-parts.js';
import { NodeJournal } from './support/node-journal.js';
import { Dice } from './support/seeded-random.js';

const BUDGET = readBudget({
  seconds: 'SANDKEEP_TEST_CRASH_KUBERNETES_SECONDS',
  count: 'SANDKEEP_TEST_CRASH_KUBERNETES_ROUNDS',
  defaultSeconds: 1,
  least: 5,
  roundMs: 300_000,
});
const SEED = readSeed('SANDKEEP_TEST_CRASH_SEED');
/** The directory of a cluster whose parts the test may kill. */
const PARTS = process.env['SANDKEEP_TEST_CLUSTER_PARTS'];
/** Some 20 seconds where nothing else runs. */
const SETTLES_WITHIN_MS = 240_000;
/** A node is lost after 20 seconds, and its Pods are evicted 30 seconds later. The rest is for a busy machine. */
const NODE_LOST_WITHIN_MS = 240_000;
const NAMES = ['ant', 'bee', 'cat', 'dog'];

const EASY = ['service', 'drain'] as const;
const HARD = ['kubelet', 'apiserver', 'etcd'] as const;
type Victim = (typeof EASY)[number] | (typeof HARD)[number];

if (PARTS === undefined) {
  console.warn(
    'crash-kubernetes: kills of the kubelet, API server, etcd and of a node are SKIPPED: SANDKEEP_TEST_CLUSTER_PARTS names no cluster',
  );
}

describeKubernetes('after kill -9 of the service and of parts of the cluster', () => {
  const dice = new Dice(SEED);
  const notes: string[] = [];
  const acknowledged = { created: new Set<string>(), deleted: new Set<string>() };
  const parts = PARTS === undefined ? undefined : new ClusterParts(PARTS);
  let namespace: TestNamespace;
  let journal: NodeJournal;
  let folder: string;
  let service: Served;
  let key: string;
  let round = 0;

  beforeAll(async () => {
    namespace = await openNamespace();
    journal = new NodeJournal(namespace.namespace);
    for (const node of parts?.nodes ?? []) await journal.follow(node, parts!.socketOf(node));
    folder = makeFolder();
    service = await serve();
    key = service.firstKey!;
    console.log(`crash-kubernetes: SANDKEEP_TEST_CRASH_SEED=${SEED}, ${BUDGET.text}`);
  });
  afterAll(async () => {
    parts?.restore();
    journal.close();
    await cleanUp(folder);
    await untilReady(namespace);
    const { core, namespace: name } = namespace;
    await core.deleteNamespace({ name });
  });

  test(
    `the store equals the record of the cluster and of its nodes: ${BUDGET.text}`,
    async () => {
      const victims: Victim[] = [...EASY, ...(parts ? HARD : [])];
      const order: Victim[] = [];
      while (BUDGET.left(round) > 0) {
        if (order.length === 0) order.push(...victims.toSorted(() => (dice.chance(0.5) ? 1 : -1)));
        round += 1;
        const begun = performance.now();
        const asking = Promise.all([ask(3, 8), ask(3, 8)]);
        await sleep(dice.between(0, 4_000));
        await strike(order.shift()!, dice.chance(0.4));
        await asking;
        await settle(SETTLES_WITHIN_MS);
        note(`round ${round} took ${((performance.now() - begun) / 1_000).toFixed(0)} s`);
      }
      expect(round).toBeGreaterThanOrEqual(BUDGET.least);
    },
    BUDGET.timeoutMs,
  );

  test.skipIf(parts === undefined)(
    `runs on a node that is cut off end at its last sign of life, and leave nothing when it is gone${parts ? '' : ' — SKIPPED: SANDKEEP_TEST_CLUSTER_PARTS names no cluster'}`,
    async () => {
      const client = clientOf();
      await deleteAll(client);
      for (const name of NAMES) await create(client, name, 1_000);
      await settle(SETTLES_WITHIN_MS);
      const pods = await podsOf();
      const nodes = parts!.nodes.map((number) => {
        const on = pods.filter(({ spec }) => spec?.nodeName === `node${number}`);
        return { number, on };
      });
      const [{ number: node, on }] = nodes.toSorted((a, b) => b.on.length - a.on.length) as [
        (typeof nodes)[number],
      ];
      const nodeName = `node${node}`;
      const runIds = on.map(({ metadata }) => metadata!.labels!['sandkeep.dev/run']!);
      expect(runIds.length).toBeGreaterThan(0);
      note(`${nodeName} is cut off with ${runIds.length} runs`);
      parts!.cutOff(node);
      // The node may give a sign of life until then.
      const cutAt = new Date().toISOString();
      const ended = async () =>
        (await readStore()).flatMap(({ runs }) => runs).filter(({ id }) => runIds.includes(id));
      await until(
        () => `the runs of the lost node end:\n${history()}`,
        async () => (await ended()).every(({ end_reason }) => end_reason !== null),
        NODE_LOST_WITHIN_MS,
        1_000,
      );
      for (const run of await ended()) {
        // A start counts from the end of its second, so a run of no length may begin after the cut.
        const isBefore = run.stopped_at! <= cutAt || run.stopped_at === run.started_at;
        expect([run.end_reason, isBefore], JSON.stringify(run)).toEqual(['node_lost', true]);
      }
      await settle(SETTLES_WITHIN_MS, new Set([nodeName]));
      note(`${nodeName} is destroyed`);
      await parts!.destroyNode(node);
      journal.noteDestroyed(node);
      kill('SIGKILL', service.pid);
      await service.exited;
      service = await serve();
      await settle(SETTLES_WITHIN_MS, new Set([nodeName]));
    },
    NODE_LOST_WITHIN_MS + 3 * SETTLES_WITHIN_MS,
  );

  test(
    'nothing is left over when the sandboxes are deleted',
    async () => {
      const client = clientOf();
      await deleteAll(client);
      await settle(SETTLES_WITHIN_MS);
      expect(await podsOf()).toEqual([]);
      expect(await othersOf()).toEqual([]);
      expect(await stop(service)).toBe(0);
      console.log(notes.filter((text) => text.startsWith('round')).join('\n'));
    },
    2 * SETTLES_WITHIN_MS,
  );

  function note(text: string): void {
    notes.push(text);
  }

  function history(): string {
    const again = `SANDKEEP_TEST_CRASH_SEED=${SEED} SANDKEEP_TEST_CRASH_KUBERNETES_ROUNDS=${round}`;
    return `${again}\n${notes.slice(-60).join('\n')}\n${service.err().slice(-4_000)}`;
  }

  function serve(): Promise<Served> {
    const runtime = ['--runtime', 'kubernetes', '--kubeconfig', process.env['KUBECONFIG']!];
    const cluster = ['--kubernetes-namespace', namespace.namespace, '--kubernetes-network', 'trusted'];
    const images = ['--kubernetes-node-images', NODE_IMAGE];
    const args = ['serve', '--json', '--port', '0', '--data-dir', folder, '--log-level', 'warn'];
    return ready(launch([...args, ...runtime, ...cluster, ...images]), folder);
  }

  function clientOf(): Client {
    return makeClient(service.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
  }

  async function deleteAll(client: Client): Promise<void> {
    for (const { id } of (await client.get('/v1/sandboxes', { limit: 100 })).body.data) {
      await client.delete(`/v1/sandboxes/${id}`);
      acknowledged.deleted.add(id);
    }
  }

  async function create(client: Client, name: string, seconds: number): Promise<number> {
    const { status, body } = await client.post(
      '/v1/sandboxes',
      {
        name,
        image: { type: 'oci', reference: NODE_IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 32 },
        lifecycle: { ends_with_command: true },
        runtime: { entrypoint: [], cmd: ['sh', '-c', `trap 'exit 0' TERM; sleep ${seconds} & wait`] },
      },
      { start: true },
    );
    if (status < 300) acknowledged.created.add(body.id as string);
    return status;
  }

  /** Sends random operations in sequence until the service is gone. */
  async function ask(least: number, most: number): Promise<void> {
    const client = clientOf();
    try {
      for (let count = dice.between(least, most); count > 0; count -= 1) {
        const name = dice.oneOf(NAMES);
        const operation = dice.weighted({ create: 45, start: 20, stop: 20, delete: 15 });
        const path = `/v1/sandboxes/by-name/${name}`;
        note(`${operation} ${name}: ${await carryOut(client, operation, name, path)}`);
        await sleep(dice.between(0, 1_500));
      }
    } catch (error) {
      // The connection broke.
      if (!(error instanceof TypeError)) throw error;
    }
  }

  async function carryOut(client: Client, operation: string, name: string, path: string): Promise<number> {
    // Some end by themselves.
    const seconds = dice.chance(0.3) ? dice.between(1, 10) : 1_000;
    if (operation === 'create') return create(client, name, seconds);
    if (operation !== 'delete') return (await client.post(`${path}/${operation}`, {})).status;
    const { body } = await client.get(path);
    if (body.id === undefined) return 404;
    const { status } = await client.delete(`/v1/sandboxes/${body.id}`);
    if (status < 300) acknowledged.deleted.add(body.id as string);
    return status;
  }

  async function strike(victim: Victim, withService: boolean): Promise<void> {
    note(`round ${round}: ${victim}${withService && victim !== 'service' ? ' and the service' : ''}`);
    const part = victim === 'kubelet' ? `kubelet${dice.oneOf(parts!.nodes)}` : victim;
    if (victim === 'drain') await drain();
    else if (victim !== 'service') await parts!.kill(part);
    if (withService || victim === 'service') {
      kill('SIGKILL', service.pid);
      await service.exited;
    }
    await sleep(dice.between(0, 3_000));
    if (victim !== 'drain' && victim !== 'service') parts!.start(part);
    if (withService || victim === 'service') {
      await untilReady(namespace);
      service = await serve();
    }
    await untilReady(namespace);
  }

  /** As an operator does who takes a node away for a while. */
  async function drain(): Promise<void> {
    const { core } = namespace;
    const nodes = (await core.listNode()).items.map(({ metadata }) => metadata!.name!);
    const node = dice.oneOf(nodes);
    await setUnschedulable(node, true);
    const apiVersion = await evictionVersion();
    for (const { metadata, spec } of await podsOf()) {
      if (spec?.nodeName !== node) continue;
      const { name } = metadata!;
      const body: V1Eviction = {
        apiVersion,
        kind: 'Eviction',
        metadata: { name: name!, namespace: namespace.namespace },
      };
      await core
        .createNamespacedPodEviction({ name: name!, namespace: namespace.namespace, body })
        .catch(ignoreGone);
    }
    await setUnschedulable(node, false);
  }

  async function setUnschedulable(name: string, unschedulable: boolean): Promise<void> {
    const { core, library } = namespace;
    await core.patchNode(
      { name, body: { spec: { unschedulable } } },
      library.setHeaderOptions('Content-Type', library.PatchStrategy.MergePatch),
    );
  }

  /** Kubernetes has `policy/v1` since 1.22, and no other since 1.25. */
  async function evictionVersion(): Promise<string> {
    const { library, config } = namespace;
    const { gitVersion } = await config.makeApiClient(library.VersionApi).getCode();
    return Number(gitVersion.split('.')[1]) < 22 ? 'policy/v1beta1' : 'policy/v1';
  }

  /** Compares until no fault is found. Throws the faults that stay. */
  async function settle(millis: number, lost: ReadonlySet<string> = new Set()): Promise<void> {
    const deadline = Date.now() + millis;
    for (;;) {
      const wrong = await compare(lost).catch((error: Error) => [`it cannot be compared: ${error.message}`]);
      if (wrong.length === 0) return;
      if (Date.now() > deadline) throw new Error(`${wrong.join('\n')}\n\n${history()}`);
      await sleep(500);
    }
  }

  async function compare(lost: ReadonlySet<string>): Promise<string[]> {
    const record: ClusterRecord = {
      pods: await podsOf(),
      others: await othersOf(),
      runs: journal.runs,
      lost,
    };
    return checkCluster(await readStore(), record, acknowledged, parts !== undefined);
  }

  async function podsOf() {
    return (await namespace.core.listNamespacedPod({ namespace: namespace.namespace })).items;
  }

  /** Claims, policies and secrets that the service made for a sandbox. */
  async function othersOf(): Promise<ClusterRecord['others']> {
    const { core, networking, namespace: name } = namespace;
    const labelSelector = 'sandkeep.dev/sandbox';
    const lists = await Promise.all([
      core.listNamespacedPersistentVolumeClaim({ namespace: name, labelSelector }),
      core.listNamespacedSecret({ namespace: name, labelSelector }),
      networking.listNamespacedNetworkPolicy({ namespace: name, labelSelector }),
    ]);
    return lists.flatMap(({ kind, items }) =>
      items.map(({ metadata }) => ({
        name: `${kind} ${metadata?.name}`,
        sandboxId: metadata?.labels?.[labelSelector],
      })),
    );
  }

  async function readStore(): Promise<StoredSandbox[]> {
    return inDatabase(folder, async (client) => {
      await client.query('set timezone to utc');
      const time = (column: string) =>
        `to_char(${column} at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')`;
      const { rows } = await client.query<StoredSandbox>(
        `select s.id, s.status, s.status_reason, s.removed_at is not null as removed,
           s.destroyed_at is not null as destroyed, s.run_id,
           coalesce((
             select json_agg(json_build_object('id', r.id, 'end_reason', r.end_reason,
               'started_at', ${time('r.started_at')}, 'stopped_at', ${time('r.stopped_at')},
               'seen_at', ${time('r.seen_at')}))
             from runs r where r.org_id = s.org_id and r.sandbox_id = s.id), '[]') as runs
         from sandboxes s`,
      );
      return rows;
    });
  }
});

async function untilReady({ core }: TestNamespace): Promise<void> {
  await until(
    'the API server answers',
    () =>
      core.listNode().then(
        () => true,
        () => false,
      ),
    120_000,
    200,
  );
}

function ignoreGone(error: { code?: number }): void {
  if (error.code !== 404) throw error;
}
