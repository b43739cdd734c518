import type { V1Pod } from '@kubernetes/client-node';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../../src/cli/table.js';
import { sleep } from '../../src/lib/sleep.js';
import { openCluster, type Cluster } from '../../src/engines/kubernetes/client.js';
import { Client } from '../neighbours/client.js';
import { startService } from '../speed/processes.js';

export interface StartsOptions {
  kubeconfig: string;
  image: string;
  sandboxes: number;
  rounds: number;
  /** As many of each kind, one after another. */
  singles: number;
}

const TARGET = 1.2;
/** Small requests, so that the nodes hold all of them. */
const OVERCOMMIT = 100;
const LIMITS = { cpu: '1', memory: '32Mi' };
const REQUESTS = { ...LIMITS, cpu: `${1_000 / OVERCOMMIT}m` };
const COMMAND = ['sleep', '100000'];
/** A request waits at most this long for the sandbox. */
const WAIT_SECS = 60;
/** After that. */
const POLL_MS = 1_000;
/** A removal takes longer than a start, so the single Pods of each kind stay until there are so many. */
const SINGLES_KEPT = 20;

interface Shown {
  id: string;
  status: string;
}

/** Starts `count` at once. Returns the milliseconds from the call until each runs. */
type Arm = (count: number) => Promise<number[]>;

interface Measured {
  times: number[];
  seconds: number;
}

/** Prints the times from create to running, beside those of the same Pods without a control plane of ours. */
export async function kubernetesStarts({
  kubeconfig,
  image,
  sandboxes,
  rounds,
  singles,
}: StartsOptions): Promise<void> {
  const namespace = `sandkeep-bench-${process.pid}`;
  const cluster = await openCluster({ kubeconfig, namespace });
  await cluster.core.createNamespace({ body: { metadata: { name: namespace } } });
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const server = await startService([
    '--data-dir',
    directory,
    '--rate-limit',
    '1000000',
    '--runtime',
    'kubernetes',
    '--kubeconfig',
    kubeconfig,
    '--kubernetes-namespace',
    namespace,
    '--kubernetes-network',
    'trusted',
    '--kubernetes-node-images',
    image,
    '--kubernetes-cpu-overcommit',
    String(OVERCOMMIT),
  ]);
  const client = new Client(`http://${server.host}:${server.port}`, server.key!);
  const arms: Record<string, Arm> = {
    'bare Pods': (count) => startPods(cluster, image, count),
    sandboxes: (count) => startSandboxes(client, image, count),
  };
  const measured = new Map<string, Measured[]>();
  try {
    await startSandboxes(client, image, 1);
    await removeAll(client, cluster);
    for (const count of [1, sandboxes]) {
      for (let round = 0; round < (count === 1 ? singles : rounds); round += 1) {
        for (const [name, arm] of Object.entries(arms)) {
          const begun = performance.now();
          const times = await arm(count);
          const label = `${name}, ${count} at once`;
          const seconds = (performance.now() - begun) / 1_000;
          measured.set(label, [...(measured.get(label) ?? []), { times, seconds }]);
          console.error(`${label}: ${seconds.toFixed(2)} s`);
          if (count > 1) await removeAll(client, cluster);
        }
        if (round % SINGLES_KEPT === SINGLES_KEPT - 1) await removeAll(client, cluster);
      }
      print(measured, count);
      await removeAll(client, cluster);
    }
  } finally {
    await removeAll(client, cluster);
    await server.stop();
    await cluster.core.deleteNamespace({ name: namespace });
    rmSync(directory, { recursive: true, force: true });
  }
}

function print(measured: ReadonlyMap<string, Measured[]>, count: number): void {
  const figures = new Map([...measured].map(([name, rounds]) => [name, figuresOf(rounds)]));
  const floor = figures.get(`bare Pods, ${count} at once`)!;
  const rows = ['bare Pods', 'sandboxes'].map((name) => {
    const { p50, p95, p99, rate } = figures.get(`${name}, ${count} at once`)!;
    const ratio = (value: number, to: number) => {
      const mark = value / to <= TARGET ? '✓' : '✗';
      return name === 'bare Pods' ? '' : `${(value / to).toFixed(2)} ${mark}`;
    };
    return [
      `${name}, ${count} at once`,
      p50.toFixed(0),
      ratio(p50, floor.p50),
      p95.toFixed(0),
      ratio(p95, floor.p95),
      p99.toFixed(0),
      ratio(p99, floor.p99),
      rate.toFixed(2),
      ratio(floor.rate, rate),
    ];
  });
  const times = ['p50 ms', 'RATIO', 'p95 ms', 'RATIO', 'p99 ms', 'RATIO'];
  console.log(table(['CREATE TO RUNNING', ...times, 'STARTS/s', 'RATIO'], rows));
  console.log(`\nRATIO: to the bare Pods, at most ${TARGET}. STARTS/s: until the last one runs.`);
}

function figuresOf(rounds: readonly Measured[]): Record<'p50' | 'p95' | 'p99' | 'rate', number> {
  const times = rounds.flatMap((round) => round.times).toSorted((a, b) => a - b);
  const at = (part: number) => times[Math.min(times.length - 1, Math.floor(times.length * part))]!;
  const seconds = rounds.reduce((sum, round) => sum + round.seconds, 0);
  return { p50: at(0.5), p95: at(0.95), p99: at(0.99), rate: times.length / seconds };
}

/** As `kubectl run` does: a Pod, and a watch that shows when it runs. */
async function startPods(
  { core, library, config, namespace }: Cluster,
  image: string,
  count: number,
): Promise<number[]> {
  const begun = new Map<string, number>();
  const times: number[] = [];
  const onEvent = (_: string, { metadata, status }: V1Pod) => {
    const since = begun.get(metadata?.name ?? '');
    if (since === undefined || status?.containerStatuses?.[0]?.state?.running === undefined) return;
    begun.delete(metadata!.name!);
    times.push(performance.now() - since);
  };
  const path = `/api/v1/namespaces/${namespace}/pods`;
  const watch = await new library.Watch(config).watch(path, {}, onEvent, () => undefined);
  const run = async (name: string) => {
    begun.set(name, performance.now());
    const container = {
      name: 'main',
      image,
      command: COMMAND,
      resources: { limits: LIMITS, requests: REQUESTS },
    };
    await core.createNamespacedPod({
      namespace,
      body: { metadata: { name }, spec: { containers: [container], restartPolicy: 'Never' } },
    });
  };
  await Promise.all(Array.from({ length: count }, (_, index) => run(`bare-${index}-${Date.now()}`)));
  while (times.length < count) await sleep(20);
  watch.abort();
  return times;
}

async function startSandboxes(client: Client, image: string, count: number): Promise<number[]> {
  const run = async (name: string) => {
    const begun = performance.now();
    const wait = `wait_for=running&wait_timeout=${WAIT_SECS}`;
    const specification = {
      name,
      image: { type: 'oci', reference: image },
      pull_policy: 'never',
      resources: { vcpus: 1, memory_mib: 32 },
      runtime: { entrypoint: [], cmd: COMMAND },
    };
    const asked = () => ask<Shown>(client, 'POST', `/v1/sandboxes?start=true&${wait}`, specification);
    const { id, status: first } = await asked();
    let status = first;
    while (status === 'starting') {
      await sleep(POLL_MS);
      ({ status } = await ask<Shown>(client, 'GET', `/v1/sandboxes/${id}`));
    }
    if (status !== 'running') throw new Error(`the sandbox ${id} is ${status}`);
    return performance.now() - begun;
  };
  return Promise.all(Array.from({ length: count }, (_, index) => run(`s-${index}-${Date.now()}`)));
}

async function removeAll(client: Client, { core, namespace }: Cluster): Promise<void> {
  for (;;) {
    const { data } = await ask<{ data: { id: string }[] }>(client, 'GET', '/v1/sandboxes?limit=100');
    if (data.length === 0) break;
    await Promise.all(data.map(({ id }) => ask(client, 'DELETE', `/v1/sandboxes/${id}`)));
  }
  const labelSelector = '!sandkeep.dev/sandbox';
  await core.deleteCollectionNamespacedPod({ namespace, labelSelector, gracePeriodSeconds: 1 });
  while ((await core.listNamespacedPod({ namespace, limit: 1 })).items.length > 0) await sleep(500);
}

/** A busy service refuses requests for a while. */
async function ask<T>(client: Client, method: string, path: string, body?: object): Promise<T> {
  for (;;) {
    const options = body === undefined ? {} : { body: JSON.stringify(body) };
    const { status, text } = await client.call(method, path, options);
    if (status < 300) return JSON.parse(text) as T;
    if (status !== 503 && status !== 429) throw new Error(`${method} ${path}: ${status} ${text}`);
    await sleep(500);
  }
}
