import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { table } from '../src/cli/table.js';
import { SMALL } from './speed/data-set.js';
import { Generator, type Request } from './speed/generate.js';
import { ensureLoaded } from './speed/load.js';
import { MEASURES, OTHER_READS } from './speed/measures.js';
import { startServer, type Server } from './speed/processes.js';
import { Opened } from './speed/sides.js';
import { openStore } from './speed/store.js';
import { subjectOf } from './speed/subject.js';

const NAMES = new Set(['get one', 'list 20', 'events 20, type and time', 'webhooks']);
/** Unmeasured requests to each arm: until then V8 compiles. */
const WARM_UP = 10_000;
const ARMS = ['no turns', 'as it is'] as const;

export interface FairPathOptions {
  rounds: number;
  seconds: number;
  connections: number;
}

/**
 * Prints the cost of fair turns for the requests of an organization that is alone. In the other arm, requests begin
 * without a queue, an admission and a pace. It counts CPU time, because other work on the machine takes
 * time of the clock.
 */
export async function fairPath({ rounds, seconds, connections }: FairPathOptions): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const opened = new Opened();
  opened.add(async () => Promise.resolve(rmSync(directory, { recursive: true, force: true })));
  try {
    const generator = Generator.start();
    opened.add(() => generator.stop());
    const store = await openStore(directory);
    opened.add(() => store.close());
    const loaded = await ensureLoaded(store, SMALL, 'the store');
    const { id: orgId, key } = loaded.orgs[0]!;
    const script = fileURLToPath(new URL('arm-server.js', import.meta.url));
    const servers: Server[] = [];
    for (const arm of ARMS) {
      const server = await startServer([script, arm, store.url, directory, orgId]);
      opened.add(() => server.stop());
      servers.push(server);
    }
    const { host, port } = servers[0]!;
    const subject = await subjectOf(store, loaded, { host, port, key, orgId });
    const run = async ({ host, port, pid }: Server, requests: Request[]) => {
      const before = cpuMicros(pid);
      const job = { targets: [{ host, port }], connections, millis: seconds * 1_000, requests, once: false };
      const { count } = await generator.run(job);
      return { count, micros: (cpuMicros(pid) - before) / count };
    };
    const rows: string[][] = [];
    for (const { name, paths } of [...MEASURES, ...OTHER_READS].filter((read) => NAMES.has(read.name))) {
      const requests = paths(subject).map((path) => ({
        method: 'GET',
        path: path as string,
        headers: { authorization: `Bearer ${key}` },
      }));
      const micros = ARMS.map((): number[] => []);
      for (const server of servers) {
        for (let sent = 0; sent < WARM_UP;) sent += (await run(server, requests)).count;
      }
      for (let round = 0; round < rounds; round += 1) {
        const order = round % 2 === 0 ? [0, 1] : [1, 0];
        for (const which of order) micros[which]!.push((await run(servers[which]!, requests)).micros);
      }
      const [without, withIt] = micros.map(lowerQuartile) as [number, number];
      rows.push([name, without.toFixed(1), withIt.toFixed(1), (withIt / without).toFixed(3)]);
    }
    console.log(
      `Node ${process.versions.node}, ${rounds} rounds of ${seconds} s in turns, ${connections} connections; lower quartiles of the CPU time of a request\n`,
    );
    console.log(table(['REQUEST', 'NO TURNS µs', 'AS IT IS µs', 'RATIO'], rows));
  } finally {
    await opened.close();
  }
}

/** The CPU time of all threads in microseconds, as the scheduler counts it: short rounds need more than its ticks. */
function cpuMicros(pid: number): number {
  const folder = `/proc/${pid}/task`;
  return readdirSync(folder).reduce((sum, thread) => {
    const [nanos] = readFileSync(join(folder, thread, 'schedstat'), 'utf8').split(' ');
    return sum + Number(nanos) / 1_000;
  }, 0);
}

function lowerQuartile(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[Math.floor(values.length / 4)]!;
}
