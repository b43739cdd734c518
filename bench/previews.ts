import Docker from 'dockerode';
import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { table } from '../src/cli/table.js';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';
import { sleep } from '../src/lib/sleep.js';
import { makeBases, NODE_BASE } from '../test/support/container-image.js';
import { serveOnDocker } from './docker-service.js';
import { median } from './median.js';
import { call } from './previews/call.js';
import { startNginx } from './previews/nginx.js';
import { cpuMicros } from './speed/processes.js';

export interface PreviewsOptions {
  rounds: number;
  seconds: number;
  dockerSocket: string;
}

/** A way from this machine to the server in the sandbox. */
interface Way {
  name: string;
  /** The process that carries the traffic. Undefined: only the kernel does. */
  pid: number | undefined;
  task: { host: string; plain: { host: string; port: number }; header: string };
}

interface Figures {
  perSecond: number[];
  aloneP50: number[];
  aloneP99: number[];
  mibPerSecond: number[];
  cpuMicrosPerRequest: number[];
}

const LOAD = readFileSync(join(PACKAGE_ROOT, 'bench/network/load.mjs'), 'utf8');
const SERVER = readFileSync(join(PACKAGE_ROOT, 'bench/previews/server.mjs'), 'utf8');
const PORT = 8_000;
const CONNECTIONS = 32;
const DOWNLOAD_MIB = 256;
const run = promisify(execFile);

/** The same requests straight to the server, through nginx and through a preview, in turns. */
export async function previews({ rounds, seconds, dockerSocket }: PreviewsOptions): Promise<void> {
  makeBases();
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const unlimited = ['--sandbox-bandwidth-mbits', '0'];
  const server = await serveOnDocker(dockerSocket, join(directory, 'data'), unlimited);
  try {
    const { id } = await call(server, 'POST', '/v1/sandboxes?start=true&wait_for=running', {
      name: 'bench',
      image: { type: 'oci', reference: NODE_BASE },
      pull_policy: 'never',
      runtime: { cmd: ['node', '--input-type=module', '-e', SERVER] },
      resources: { vcpus: 2, memory_mib: 1_024 },
    });
    const address = await addressOf(new Docker({ socketPath: dockerSocket }), id!);
    await untilServed(address);
    const nginx = await startNginx(directory, `${address}:${PORT}`);
    try {
      const { origin, token } = await call(server, 'POST', `/v1/sandboxes/${id}/previews`, { port: PORT });
      const preview = new URL(origin!);
      const header = `Bearer ${token}`;
      const own = { host: '127.0.0.1', port: nginx.port };
      await compare(
        [
          {
            name: 'straight',
            pid: undefined,
            task: { host: address, plain: { host: address, port: PORT }, header },
          },
          { name: 'nginx', pid: nginx.pid, task: { host: 'localhost', plain: own, header } },
          {
            name: 'preview',
            pid: server.pid,
            task: { host: preview.host, plain: { host: '127.0.0.1', port: Number(preview.port) }, header },
          },
        ],
        rounds,
        seconds,
      );
    } finally {
      await nginx.stop();
    }
    await call(server, 'DELETE', `/v1/sandboxes/${id}`);
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function compare(ways: readonly Way[], rounds: number, seconds: number): Promise<void> {
  const all = new Map(ways.map((way) => [way, emptyFigures()]));
  for (let round = 0; round < rounds; round += 1) {
    for (const [way, figures] of all) {
      const before = cpuOf(way);
      const together = await load(way, { measure: 'requests', connections: CONNECTIONS, seconds });
      figures.cpuMicrosPerRequest.push((cpuOf(way) - before) / together['count']!);
      figures.perSecond.push(together['perSecond']!);
      const alone = await load(way, { measure: 'requests', connections: 1, seconds });
      figures.aloneP50.push(alone['p50']!);
      figures.aloneP99.push(alone['p99']!);
      const download = await load(way, { measure: 'download', bytes: DOWNLOAD_MIB * 1_048_576 });
      figures.mibPerSecond.push(download['mibPerSecond']!);
    }
  }
  const [straight, nginx] = ways.map((way) => all.get(way)!);
  const rows = [...all].map(([{ name }, own]) => [
    name,
    median(own.perSecond).toFixed(0),
    (median(own.perSecond) / median(nginx!.perSecond)).toFixed(2),
    `+${(median(own.aloneP50) - median(straight!.aloneP50)).toFixed(2)}, +${(median(own.aloneP99) - median(straight!.aloneP99)).toFixed(2)}`,
    median(own.mibPerSecond).toFixed(0),
    (median(own.mibPerSecond) / median(nginx!.mibPerSecond)).toFixed(2),
    median(own.cpuMicrosPerRequest).toFixed(0),
  ]);
  const head = [
    'WAY',
    `REQUESTS/s OF ${CONNECTIONS}`,
    'OF NGINX',
    'ADDED p50, p99 ms ALONE',
    'MiB/s',
    'OF NGINX',
    'CPU µs/REQUEST',
  ];
  console.log(table(head, rows));
}

async function load({ task }: Way, measure: object): Promise<Record<string, number>> {
  const { stdout } = await run(process.execPath, [
    '--input-type=module',
    '-e',
    LOAD,
    JSON.stringify({ ...task, ...measure }),
  ]);
  return JSON.parse(stdout) as Record<string, number>;
}

function cpuOf({ pid }: Way): number {
  return pid === undefined ? 0 : cpuMicros(pid);
}

function emptyFigures(): Figures {
  return { perSecond: [], aloneP50: [], aloneP99: [], mibPerSecond: [], cpuMicrosPerRequest: [] };
}

/** The address of the sandbox on its bridge, which its pause container has. */
async function addressOf(docker: Docker, id: string): Promise<string> {
  const filters = { label: [`dev.sandkeep.holder-of=${id}`] };
  const [found] = await docker.listContainers({ filters });
  const [network] = Object.values(found!.NetworkSettings.Networks);
  return network!.IPAddress;
}

async function untilServed(address: string): Promise<void> {
  for (let tries = 0; tries < 200; tries += 1) {
    const ok = await fetch(`http://${address}:${PORT}/small`).then(
      (answer) => answer.ok,
      () => false,
    );
    if (ok) return;
    await sleep(50);
  }
  throw new Error('the server in the sandbox does not answer');
}
