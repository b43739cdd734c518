import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../../src/cli/table.js';
import { sleep } from '../../src/lib/sleep.js';
import { Client } from '../neighbours/client.js';
import { cpuMicros, ownMib, startService } from '../speed/processes.js';
import { SimulatedCluster } from './simulated-cluster.js';

export interface ChangesOptions {
  sandboxes: number[];
  changes: number;
}

/** Per second, so that each change is reconciled by itself. */
const CHANGES_PER_SECOND = 10;
/** A pass over all sandboxes comes once a minute. */
const IDLE_SECONDS = 60;
const LOADERS = 32;

interface Figures {
  idleMillisPerSecond: number;
  millisPerChange: number;
  latencies: number[];
  pssMib: number;
  lists: number;
  listMib: number;
  watchKibPerChange: number;
}

/** Prints what changes cost while the service holds more and more sandboxes of a simulated cluster. */
export async function kubernetesChanges({ sandboxes, changes }: ChangesOptions): Promise<void> {
  const rows: string[][] = [];
  for (const count of sandboxes) {
    const figures = await measure(count, changes);
    const sorted = figures.latencies.toSorted((a, b) => a - b);
    const at = (part: number) => sorted[Math.floor(sorted.length * part)]!.toFixed(0);
    rows.push([
      count.toLocaleString('en'),
      figures.idleMillisPerSecond.toFixed(1),
      figures.millisPerChange.toFixed(1),
      at(0.5),
      at(0.99),
      figures.pssMib.toFixed(0),
      String(figures.lists),
      figures.listMib.toFixed(1),
      figures.watchKibPerChange.toFixed(1),
    ]);
    console.error(rows.at(-1)!.join(' | '));
  }
  console.log(
    table(
      [
        'SANDBOXES',
        'IDLE CPU ms/s',
        'CPU ms/CHANGE',
        'END TO STORE p50 ms',
        'p99 ms',
        'NODE PSS MiB',
        'LISTS',
        'LISTED MiB',
        'WATCHED KiB/CHANGE',
      ],
      rows,
    ),
  );
  console.log(
    '\nEND TO STORE: until the record of the ended Pod is released, after the commit. CPU: of the service and its PostgreSQL. LISTS: requests for pages of Pods and nodes after the start.',
  );
}

async function measure(count: number, changes: number): Promise<Figures> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const cluster = await SimulatedCluster.open({ nodes: Math.ceil(count / 100) });
  const kubeconfig = join(directory, 'kubeconfig');
  cluster.writeKubeconfig(kubeconfig);
  const server = await startService([
    '--data-dir',
    directory,
    '--rate-limit',
    '1000000',
    '--runtime',
    'kubernetes',
    '--kubeconfig',
    kubeconfig,
    '--kubernetes-network',
    'trusted',
    '--kubernetes-node-images',
    'busybox:local',
  ]);
  try {
    const client = new Client(`http://${server.host}:${server.port}`, server.key!);
    await load(client, count);
    await untilRunning(client, cluster, count);
    // The counts and logs of the load settle.
    await sleep(5_000);
    const before = { ...cluster.traffic, lists: listsOf(cluster) };
    const idle = await cpuOver(server.pid, () => sleep(IDLE_SECONDS * 1_000));
    const idleMillisPerSecond = idle.cpuMillis / idle.seconds;
    const watchedBefore = cluster.traffic.watchBytes;
    const latencies: number[] = [];
    const busy = await cpuOver(server.pid, async () => {
      latencies.push(...(await endPods(cluster, changes)));
    });
    return {
      idleMillisPerSecond,
      millisPerChange: (busy.cpuMillis - idleMillisPerSecond * busy.seconds) / changes,
      latencies,
      pssMib: ownMib(server.pid).pss,
      lists: listsOf(cluster) - before.lists,
      listMib: (cluster.traffic.listBytes - before.listBytes) / 1024 / 1024,
      watchKibPerChange: (cluster.traffic.watchBytes - watchedBefore) / 1024 / changes,
    };
  } finally {
    await server.stop();
    await cluster.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function load(client: Client, count: number): Promise<void> {
  let next = 0;
  const create = async () => {
    while (next < count) {
      next += 1;
      await client.json('POST', '/v1/sandboxes?start=true', {
        name: `s-${next}`,
        image: { type: 'oci', reference: 'busybox:local' },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 128 },
        labels: { team: `t${next % 10}` },
        lifecycle: { ends_with_command: true },
        runtime: { entrypoint: [], cmd: ['sleep', '1000'] },
      });
    }
  };
  await Promise.all(Array.from({ length: LOADERS }, create));
}

async function untilRunning(client: Client, cluster: SimulatedCluster, count: number): Promise<void> {
  for (;;) {
    const running = cluster.pods().filter(({ status }) => status?.['phase'] === 'Running').length;
    const { data } = await client.json<{ data: unknown[] }>('GET', '/v1/sandboxes?status=starting&limit=1');
    if (running === count && data.length === 0) return;
    await sleep(500);
  }
}

/** Ends Pods at a steady rate, as if their commands had ended. Returns the milliseconds until each is recorded. */
async function endPods(cluster: SimulatedCluster, changes: number): Promise<number[]> {
  const pods = cluster.pods().slice(0, changes);
  const begun = new Map<string, number>();
  const latencies: number[] = [];
  const unsubscribe = cluster.store.subscribe(({ object: { metadata } }) => {
    const since = begun.get(metadata.name);
    if (since === undefined || (metadata.finalizers ?? []).length > 0) return;
    begun.delete(metadata.name);
    latencies.push(performance.now() - since);
  });
  for (const { metadata } of pods) {
    begun.set(metadata.name, performance.now());
    cluster.nodes.end('/api/v1/namespaces/default/pods', metadata.name, 0);
    await sleep(1_000 / CHANGES_PER_SECOND);
  }
  while (latencies.length < pods.length) await sleep(50);
  unsubscribe();
  return latencies;
}

async function cpuOver(
  pid: number,
  work: () => Promise<unknown>,
): Promise<{ cpuMillis: number; seconds: number }> {
  const [cpu, begun] = [cpuMicros(pid), performance.now()];
  await work();
  return { cpuMillis: (cpuMicros(pid) - cpu) / 1_000, seconds: (performance.now() - begun) / 1_000 };
}

function listsOf({ traffic }: SimulatedCluster): number {
  return Object.entries(traffic.requests)
    .filter(([name]) => name.startsWith('LIST '))
    .reduce((sum, [, count]) => sum + count, 0);
}
