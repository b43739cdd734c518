import Docker from 'dockerode';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../src/cli/table.js';
import { INSTANCE_LABEL, SANDBOX_LABEL } from '../src/engines/docker/container.js';
import { sleep } from '../src/lib/sleep.js';
import { captureOf } from './capture-of.js';
import { serveOnDocker } from './docker-service.js';
import { median } from './median.js';
import { Client } from './neighbours/client.js';

export interface CyclesOptions {
  cycles: number;
  /** No further cycle begins after so many minutes. */
  minutes: number;
  image: string;
  dockerSocket: string;
}

const AT_ONCE = 4;
const SHOWN_EVERY = 25;
const STARTED = '/v1/sandboxes?start=true&wait_for=running&wait_timeout=120';
const LONGEST_REMOVAL_MS = 10 * 60_000;
const POLL_MS = 1_000;
const FORK_POLL_MS = 50;
const MIB = 1024 * 1024;

type Times = Record<'create' | 'snapshot' | 'start of it' | 'fork of it' | 'deletes', number[]>;

/**
 * Creates a sandbox, makes a snapshot, starts another sandbox from it, forks that one, and deletes everything, many
 * times. The engine must have the same of the installation afterwards as before. Others may use the engine meanwhile.
 */
export async function snapshotCycles(options: CyclesOptions): Promise<void> {
  const { cycles, minutes, image, dockerSocket } = options;
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const wide = ['--rate-limit', '1000000', '--volume-purge-hours', '0'];
  const server = await serveOnDocker(dockerSocket, directory, wide);
  const client = new Client(`http://${server.host}:${server.port}`, server.key!);
  const docker = new Docker({ socketPath: dockerSocket });
  const times: Times = { create: [], snapshot: [], 'start of it': [], 'fork of it': [], deletes: [] };
  try {
    // The first start makes the volume of process 1, and pulls the image.
    const first = await start(client, 'first', { type: 'oci', reference: image });
    const label = [`${SANDBOX_LABEL}=${first}`];
    const [container] = await docker.listContainers({ filters: { label } });
    const installation = container!.Labels[INSTANCE_LABEL]!;
    await client.json('DELETE', `/v1/sandboxes/${first}`);
    const before = await untilEqual(docker, installation, undefined);
    let begunCycles = 0;
    const begun = performance.now();
    const work = async () => {
      while (begunCycles < cycles && performance.now() - begun < minutes * 60_000) {
        await cycle(client, image, (begunCycles += 1), times);
        if (times.deletes.length % SHOWN_EVERY === 0) {
          const passed = ((performance.now() - begun) / 60_000).toFixed(0);
          console.error(`${times.deletes.length} of ${cycles} cycles after ${passed} minutes`);
        }
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    const seconds = (performance.now() - begun) / 1000;
    const after = await untilEqual(docker, installation, before);
    const rows = Object.entries(times).map(([name, values]) => [
      name,
      ...[Math.min(...values), median(values), Math.max(...values)].map((ms) => ms.toFixed(0)),
    ]);
    console.log(table([`${begunCycles} CYCLES, ${AT_ONCE} AT ONCE`, 'MIN ms', 'MEDIAN ms', 'MAX ms'], rows));
    console.log(`\n${(begunCycles / seconds).toFixed(2)} cycles a second\n`);
    const shown = (name: string, { own, all }: Disk) => [
      name,
      ...[own.images, own.containers, all.images, all.containers].map(String),
      (all.bytes / MIB).toFixed(3),
    ];
    console.log(
      table(
        [
          'docker system df',
          'OWN IMAGES',
          'OWN CONTAINERS',
          'ALL IMAGES',
          'ALL CONTAINERS',
          'ALL LAYERS MiB',
        ],
        [shown('before', before), shown('after', after)],
      ),
    );
    if (!isEqual(before, after)) process.exitCode = 1;
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function cycle(client: Client, image: string, number: number, times: Times): Promise<void> {
  const timed = async <T>(name: keyof Times, work: () => Promise<T>): Promise<T> => {
    const begun = performance.now();
    const result = await work();
    times[name].push(performance.now() - begun);
    return result;
  };
  const source = await timed('create', async () =>
    start(client, `source-${number}`, { type: 'oci', reference: image }),
  );
  await client.json('POST', `/v1/sandboxes/${source}/exec`, {
    cmd: 'sh',
    args: ['-c', `echo ${number} > /cycle`],
  });
  const snapshot = await timed('snapshot', async () => captureOf(client, source, `snapshot-${number}`));
  const made = await timed('start of it', async () =>
    start(client, `made-${number}`, { type: 'disk_snapshot', id: snapshot }),
  );
  const copies = await timed('fork of it', async () => forkOf(client, made));
  await timed('deletes', async () => {
    await client.json('DELETE', `/v1/snapshots/${snapshot}`);
    for (const id of [source, made, ...copies]) await client.json('DELETE', `/v1/sandboxes/${id}`);
  });
}

async function start(client: Client, name: string, image: object): Promise<string> {
  const part = { runtime: { cmd: ['sleep', '1000000'] }, resources: { vcpus: 1, memory_mib: 32 } };
  return (await client.json<{ id: string }>('POST', STARTED, { name, image, ...part })).id;
}

interface Fork {
  id: string;
  status: string;
  error: { message: string } | null;
  sandboxes: { id: string; status: string }[];
}

/** Makes two copies of a sandbox, and returns their ids when they run. */
async function forkOf(client: Client, sandboxId: string): Promise<string[]> {
  let fork = await client.json<Fork>('POST', `/v1/sandboxes/${sandboxId}/fork`, { count: 2 });
  while (fork.status !== 'failed' && !fork.sandboxes.every(({ status }) => status === 'running')) {
    await sleep(FORK_POLL_MS);
    fork = await client.json<Fork>('GET', `/v1/fork-operations/${fork.id}`);
  }
  if (fork.error) throw new Error(fork.error.message);
  return fork.sandboxes.map(({ id }) => id);
}

interface Disk {
  /** The installation has them. */
  own: { images: number; containers: number };
  all: { images: number; containers: number; bytes: number };
}

function isEqual({ own: a }: Disk, { own: b }: Disk): boolean {
  return a.images === b.images && a.containers === b.containers;
}

interface Labelled {
  Labels: Record<string, string> | null;
}

/** The disk of the engine when it changes no more, or equals `wanted`. */
async function untilEqual(docker: Docker, installation: string, wanted: Disk | undefined): Promise<Disk> {
  const deadline = performance.now() + LONGEST_REMOVAL_MS;
  for (let last = wanted; ;) {
    const { LayersSize, Images, Containers } = (await docker.df()) as {
      LayersSize: number;
      Images: Labelled[];
      Containers: Labelled[];
    };
    const own = (list: Labelled[]) =>
      list.filter(({ Labels }) => Labels?.[INSTANCE_LABEL] === installation).length;
    const found = {
      own: { images: own(Images), containers: own(Containers) },
      all: { images: Images.length, containers: Containers.length, bytes: LayersSize },
    };
    const isEnd = last !== undefined && isEqual(found, last);
    if (isEnd || performance.now() > deadline) return found;
    last = wanted ?? found;
    await sleep(wanted ? POLL_MS : 15 * POLL_MS);
  }
}
