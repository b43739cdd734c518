import Docker from 'dockerode';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../src/cli/table.js';
import { PACKAGE_ROOT } from '../src/lib/package-root.js';
import { CLIENTS, makeClientImage } from '../test/support/internet/client-image.js';
import { Internet } from '../test/support/internet/internet.js';
import { serveOnDocker } from './docker-service.js';
import { median } from './median.js';
import { startHaproxy } from './network/haproxy.js';
import { startMitmproxy } from './network/mitmproxy.js';
import { makePaths, type Path } from './network/paths.js';
import type { Proxy } from './network/proxy.js';
import { cpuMicros } from './speed/processes.js';

export interface NetworkOptions {
  rounds: number;
  seconds: number;
  bandwidth: number;
  dockerSocket: string;
}

const HOST = 'origin.bench.test';
const NUMBER = 250;
const DOWNLOAD_MIB = 256;
const CONNECTIONS = 32;

interface Figures {
  perSecond: number[];
  p50: number[];
  p99: number[];
  /** A connection that is alone waits for nobody. */
  aloneP50: number[];
  aloneP99: number[];
  mibPerSecond: number[];
  cpuMsPerRequest: number[];
  cpuMsPerMib: number[];
  handshakes: number[];
}

/** Requests and downloads over TLS by each way out of a sandbox, and by other proxies, in turns. */
export async function network({
  rounds,
  seconds,
  bandwidth,
  dockerSocket: socketPath,
}: NetworkOptions): Promise<void> {
  makeClientImage();
  const internet = await Internet.start({
    number: NUMBER,
    zone: (address) => ({ [HOST]: { addresses: [address(10)] } }),
    program: join(PACKAGE_ROOT, 'dist/bench/network/origin.js'),
  });
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  let mitmproxy: Proxy | undefined;
  let haproxy: Proxy | undefined;
  try {
    mitmproxy = await startMitmproxy(internet, directory);
    haproxy = await startHaproxy(internet, directory);
    const server = await serveOnDocker(socketPath, join(directory, 'data'), [
      '--docker-resolvers',
      internet.resolver,
      '--sandbox-bandwidth-mbits',
      String(bandwidth),
    ]);
    const paths = await makePaths({
      server,
      docker: new Docker({ socketPath }),
      internet,
      host: HOST,
      mitmproxy,
      haproxy,
      image: CLIENTS,
    });
    try {
      await compare(paths, rounds, seconds);
    } finally {
      for (const path of paths) await path.close();
      await server.stop();
    }
  } finally {
    await haproxy?.stop();
    await mitmproxy?.stop();
    await internet.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function compare(paths: readonly Path[], rounds: number, seconds: number): Promise<void> {
  const all = new Map(paths.map((path) => [path, emptyFigures()]));
  for (let round = 0; round < rounds; round += 1) {
    for (const [path, figures] of all) {
      const start = cpuOf(path);
      const together = await path.run({ measure: 'requests', connections: CONNECTIONS, seconds });
      figures.cpuMsPerRequest.push((cpuOf(path) - start) / 1_000 / together['count']!);
      figures.perSecond.push(together['perSecond']!);
      figures.p50.push(together['p50']!);
      figures.p99.push(together['p99']!);
      const alone = await path.run({ measure: 'requests', connections: 1, seconds });
      figures.aloneP50.push(alone['p50']!);
      figures.aloneP99.push(alone['p99']!);
      const before = cpuOf(path);
      const download = await path.run({ measure: 'download', bytes: DOWNLOAD_MIB * 1_048_576 });
      figures.mibPerSecond.push(download['mibPerSecond']!);
      figures.cpuMsPerMib.push((cpuOf(path) - before) / 1_000 / DOWNLOAD_MIB);
      const handshakes = await path.run({ measure: 'connections', seconds });
      figures.handshakes.push(handshakes['perSecond']!);
    }
  }
  const direct = medians(all.get(paths[0]!)!);
  const rows = [...all].map(([path, figures]) => {
    const own = medians(figures);
    return [
      path.name,
      own.perSecond.toFixed(0),
      own.cpuMsPerRequest.toFixed(2),
      `${own.p50.toFixed(1)}, ${own.p99.toFixed(1)}`,
      `+${(own.aloneP50 - direct.aloneP50).toFixed(2)}, +${(own.aloneP99 - direct.aloneP99).toFixed(2)}`,
      own.handshakes.toFixed(0),
      own.mibPerSecond.toFixed(0),
      (own.mibPerSecond / direct.mibPerSecond).toFixed(2),
      own.cpuMsPerMib.toFixed(2),
    ];
  });
  const head = [
    'WAY',
    'REQUESTS/s',
    'CPU ms/REQUEST',
    `p50, p99 ms OF ${CONNECTIONS}`,
    'ADDED p50, p99 ms ALONE',
    'NEW CONNECTIONS/s',
    'MiB/s',
    'OF DIRECT',
    'CPU ms/MiB',
  ];
  console.log(table(head, rows));
}

/** The CPU time of the process that carries the traffic, in microseconds. */
function cpuOf({ pid }: Path): number {
  return pid === undefined ? 0 : cpuMicros(pid);
}

function emptyFigures(): Figures {
  return {
    perSecond: [],
    p50: [],
    p99: [],
    aloneP50: [],
    aloneP99: [],
    mibPerSecond: [],
    cpuMsPerRequest: [],
    cpuMsPerMib: [],
    handshakes: [],
  };
}

function medians(figures: Figures): Record<keyof Figures, number> {
  const pairs = Object.entries(figures) as [keyof Figures, number[]][];
  return Object.fromEntries(pairs.map(([name, values]) => [name, median(values)])) as Record<
    keyof Figures,
    number
  >;
}
