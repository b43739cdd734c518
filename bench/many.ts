import Docker from 'dockerode';
import { execFileSync } from 'node:child_process';
import { createSocket } from 'node:dgram';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { freemem, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../src/cli/table.js';
import { networkNames } from '../src/engines/docker/network/pause-container.js';
import { sleep } from '../src/lib/sleep.js';
import { serveOnDocker } from './docker-service.js';
import { Client } from './neighbours/client.js';
import { cpuMicros, ownMib } from './speed/processes.js';

export interface ManyOptions {
  sandboxes: number;
  atOnce: number;
  image: string;
  /** No further start begins after so many minutes. */
  minutes: number;
  dockerSocket: string;
}

const ROWS = 11;
const LIST_EVERY_MS = 200;
const BURST_MS = 3_000;
const IDLE_MS = 20_000;
const MIB = 1024 * 1024;

interface Timed {
  at: number;
  ms: number;
}

/** Starts many small sandboxes with networks on one engine, and measures the service meanwhile. */
export async function many(options: ManyOptions): Promise<void> {
  const { sandboxes, atOnce, image, minutes, dockerSocket } = options;
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const wide = ['--rate-limit', '1000000', '--capacity-vcpus', '100000', '--capacity-memory-mib', '1000000'];
  const server = await serveOnDocker(dockerSocket, directory, wide);
  const client = new Client(`http://${server.host}:${server.port}`, server.key!);
  const begun = performance.now();
  const starts: Timed[] = [];
  const lists: Timed[] = [];
  const rows: string[][] = [];
  const failures: string[] = [];
  const over = new AbortController();
  let first = '';
  let next = 0;
  let ended = begun;
  try {
    const listing = (async () => {
      while (!over.signal.aborted) {
        const at = performance.now();
        await client.json('GET', '/v1/sandboxes?limit=20');
        lists.push({ at, ms: performance.now() - at });
        await sleep(LIST_EVERY_MS, over.signal);
      }
    })();
    const step = Math.ceil(sandboxes / ROWS);
    let from = { at: begun, cpu: cpuMicros(server.pid) };
    const starter = async () => {
      while (next < sandboxes && performance.now() - begun < minutes * 60_000) {
        const name = `many-${(next += 1)}`;
        const at = performance.now();
        try {
          const { id, status } = await client.json<{ id: string; status: string }>(
            'POST',
            '/v1/sandboxes?start=true&wait_for=running&wait_timeout=120',
            {
              name,
              image: { type: 'oci', reference: image },
              runtime: { cmd: ['sleep', '1000000'] },
              resources: { vcpus: 0, memory_mib: 16 },
            },
          );
          first ||= id;
          if (status !== 'running') throw new Error(`${name} is ${status}`);
        } catch (error) {
          failures.push((error as Error).message);
          continue;
        }
        ended = performance.now();
        starts.push({ at: ended, ms: ended - at });
        if (starts.length % step !== 0 && starts.length !== sandboxes) continue;
        const now = { at: ended, cpu: cpuMicros(server.pid) };
        const secs = (now.at - from.at) / 1_000;
        const since = (all: readonly Timed[]) =>
          all.filter(({ at: when }) => when > from.at).map(({ ms }) => ms);
        const rate = (starts.length - Number(rows.at(-1)?.[0] ?? 0)) / secs;
        rows.push([
          String(starts.length),
          rate.toFixed(2),
          at50(since(starts)).toFixed(0),
          at99(since(lists)).toFixed(0),
          ownMib(server.pid).rss.toFixed(0),
          ((now.cpu - from.cpu) / 1_000 / secs).toFixed(0),
          (freemem() / MIB).toFixed(0),
          loadavg()[0]!.toFixed(1),
        ]);
        console.error(rows.at(-1)!.join(' | '));
        from = now;
      }
    };
    await Promise.all(Array.from({ length: atOnce }, starter));
    const seconds = (ended - begun) / 1_000;
    const head = [
      'RUNNING',
      'STARTS/s',
      'START p50 ms',
      'LIST p99 ms',
      'SERVICE MiB',
      'CPU ms/s',
      'FREE MiB',
      'LOAD',
    ];
    console.log(table(head, rows));
    console.log(
      `\n${starts.length} started in ${seconds.toFixed(0)} s, ${(starts.length / seconds).toFixed(2)} a second; ${failures.length} failed`,
    );
    for (const failure of new Set(failures.slice(0, 5))) console.log(`  ${failure}`);
    await printIdle(server.pid, lists);
    await printSpread(dockerSocket, first);
    over.abort();
    await listing;
  } finally {
    over.abort();
    const at = performance.now();
    await server.stop();
    console.log(`removed in ${((performance.now() - at) / 1_000).toFixed(0)} s`);
    rmSync(directory, { recursive: true, force: true });
  }
}

/** The cost of many that run, while nothing changes. */
async function printIdle(pid: number, lists: readonly Timed[]): Promise<void> {
  const begun = performance.now();
  const before = [cpuMicros(pid), engineMicros()];
  await sleep(IDLE_MS);
  const [service, engine] = [cpuMicros(pid), engineMicros()].map(
    (micros, index) => (micros - before[index]!) / IDLE_MS,
  );
  const idle = lists.filter(({ at }) => at >= begun).map(({ ms }) => ms);
  console.log(
    `idle: the service uses ${service!.toFixed(0)} ms of CPU a second, the engine ${engine!.toFixed(0)}; a list takes ${at50(idle).toFixed(0)} ms p50, ${at99(idle).toFixed(0)} p99`,
  );
}

function engineMicros(): number {
  const pids = execFileSync('pgrep', ['-x', 'dockerd'], { encoding: 'utf8' }).split('\n').filter(Boolean);
  return pids.reduce((sum, pid) => sum + cpuMicros(Number(pid)), 0);
}

/** `sandboxId`: of one of them. */
async function printSpread(socketPath: string, sandboxId: string): Promise<void> {
  const docker = new Docker({ socketPath });
  const { Config } = await docker.getContainer(`sandkeep-net-${sandboxId}`).inspect();
  const instance = `dev.sandkeep.instance=${Config.Labels['dev.sandkeep.instance']}`;
  const label = ['dev.sandkeep.holder-of', instance];
  const counts = new Map<string, number>();
  const holders = await docker.listContainers({ filters: { label } });
  for (const holder of holders) {
    const [bridge = 'none'] = networkNames(holder);
    counts.set(bridge, (counts.get(bridge) ?? 0) + 1);
  }
  const refused = neighbourCounts().fulls;
  const addresses = holders.flatMap(({ NetworkSettings }) =>
    Object.values(NetworkSettings.Networks).flatMap(({ IPAddress }) => IPAddress || []),
  );
  // The machine and each sandbox look for each other, as when all of them work at once.
  const socket = createSocket('udp4').unref();
  const failed = await Promise.all(
    addresses.map(
      (address) =>
        new Promise<boolean>((resolve) => socket.send('x', 9, address, (error) => resolve(error !== null))),
    ),
  );
  await sleep(BURST_MS);
  const { entries, fulls } = neighbourCounts();
  const tasks = readFileSync('/proc/loadavg', 'utf8').split(' ')[3]!.split('/')[1];
  console.log(`sandboxes by bridge: ${[...counts.values()].join(', ')}; ${tasks} threads of the machine`);
  console.log(
    `a packet to each: ${entries} entries in the neighbour tables, ${fulls - refused} refused, ${failed.filter(Boolean).length} packets not sent`,
  );
  socket.close();
}

/** The kernel bounds the entries of all namespaces together. */
function neighbourCounts(): { entries: number; fulls: number } {
  const rows = readFileSync('/proc/net/stat/arp_cache', 'utf8').trim().split('\n').slice(1);
  const cells = rows.map((row) =>
    row
      .trim()
      .split(/\s+/)
      .map((cell) => Number.parseInt(cell, 16)),
  );
  return { entries: cells[0]![0]!, fulls: cells.reduce((sum, row) => sum + row[12]!, 0) };
}

const at50 = (values: readonly number[]) => quantile(values, 0.5);
const at99 = (values: readonly number[]) => quantile(values, 0.99);

function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN;
}
