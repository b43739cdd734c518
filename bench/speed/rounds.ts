import type { Generator, JobResult, Request } from './generate.js';
import { cpuMicros, memoryMib, type Server } from './processes.js';

/** An arm: a set of servers that gets the same requests as the other arms, in turns. */
export interface Arm {
  servers: readonly Server[];
  /** The process id of their PostgreSQL. */
  postmaster: number | undefined;
  requests: Request[];
}

/** Medians of the rounds: milliseconds, requests a second, CPU microseconds a request, and the maximal MiB. */
export interface Figures {
  p50: number;
  p90: number;
  p99: number;
  rate: number;
  nodeMicros: number;
  postgresMicros: number;
  nodePss: number;
  nodeRss: number;
  postgresPss: number;
}

export interface Pace {
  rounds: number;
  seconds: number;
  connections: number;
}

/** The number of turns. The service, the largest program, is fully compiled after some ten thousand requests. */
const WARM_UP = 5;

/**
 * Measures every arm in each round in sequence, so that other load on the machine slows all of them. Each round
 * starts with another arm. Unmeasured requests come first, until the code is compiled.
 */
export async function inTurns<Name extends string>(
  generator: Generator,
  arms: Record<Name, Arm>,
  { rounds, seconds, connections }: Pace,
): Promise<Record<Name, Figures & { all: Figures[] }>> {
  const names = Object.keys(arms) as Name[];
  const measured = new Map(names.map((name) => [name, [] as Figures[]]));
  for (const name of names) await run(generator, arms[name], connections, seconds * WARM_UP);
  for (let round = 0; round < rounds; round += 1) {
    for (let index = 0; index < names.length; index += 1) {
      const name = names[(round + index) % names.length]!;
      measured.get(name)!.push(await measureOnce(generator, arms[name], connections, seconds));
    }
  }
  return Object.fromEntries([...measured].map(([name, all]) => [name, { ...middle(all), all }])) as Record<
    Name,
    Figures & { all: Figures[] }
  >;
}

/** `once`: sends each request only once, without a time limit. */
export async function measureOnce(
  generator: Generator,
  arm: Arm,
  connections: number,
  seconds: number,
  once = false,
): Promise<Figures> {
  const before = cpuOf(arm);
  const { count, millis, p50, p90, p99 } = await run(generator, arm, connections, seconds, once);
  const after = cpuOf(arm);
  const node = arm.servers.map(({ pid }) => memoryMib(pid));
  const sum = (values: number[]) => values.reduce((total, value) => total + value, 0);
  return {
    p50,
    p90,
    p99,
    rate: (count / millis) * 1_000,
    nodeMicros: (after.node - before.node) / count,
    postgresMicros: (after.postgres - before.postgres) / count,
    nodePss: sum(node.map(({ pss }) => pss)),
    nodeRss: sum(node.map(({ rss }) => rss)),
    postgresPss: arm.postmaster === undefined ? 0 : memoryMib(arm.postmaster).pss,
  };
}

async function run(
  generator: Generator,
  { servers, requests }: Arm,
  connections: number,
  seconds: number,
  once = false,
): Promise<JobResult> {
  const targets = servers.map(({ host, port }) => ({ host, port }));
  return generator.run({ targets, connections, millis: seconds * 1_000, requests, once });
}

function cpuOf({ servers, postmaster }: Arm): { node: number; postgres: number } {
  return {
    node: servers.reduce((sum, { pid }) => sum + cpuMicros(pid), 0),
    postgres: postmaster === undefined ? 0 : cpuMicros(postmaster),
  };
}

/** The median of each figure; the maximum of memory. */
export function middle(all: readonly Figures[]): Figures {
  const of = (name: keyof Figures) => median(all.map((figures) => figures[name]));
  const most = (name: keyof Figures) => Math.max(...all.map((figures) => figures[name]));
  return {
    p50: of('p50'),
    p90: of('p90'),
    p99: of('p99'),
    rate: of('rate'),
    nodeMicros: of('nodeMicros'),
    postgresMicros: of('postgresMicros'),
    nodePss: most('nodePss'),
    nodeRss: most('nodeRss'),
    postgresPss: most('postgresPss'),
  };
}

function median(values: readonly number[]): number {
  const sorted = values.toSorted((a, b) => a - b);
  const half = Math.floor(sorted.length / 2);
  return sorted.length % 2 === 1 ? sorted[half]! : (sorted[half - 1]! + sorted[half]!) / 2;
}
