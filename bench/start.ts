import { mkdtempSync, rmSync } from 'node:fs';
import { cpus, loadavg, tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../src/cli/table.js';
import { IMAGE, makeImage } from '../test/support/docker.js';
import { median } from './median.js';
import { dockerSide } from './start/docker-cli.js';
import { watchEngine, type EngineCall } from './start/engine-calls.js';
import { runcSide } from './start/runc.js';
import { serviceSide } from './start/service.js';
import type { Side, Started } from './start/side.js';

export interface StartOptions {
  rounds: number;
  atOnce: number[];
  prepared: number;
  pool: number;
  dockerSocket: string;
}

/** The steps of one sandbox, in their order. */
const STEPS = ['running', 'first output', 'next command', 'stop', 'start again', 'delete'] as const;
type Step = (typeof STEPS)[number];

/** From a request to the first output of a command, beside the engine's own command line and `runc`, in turns. */
export async function start({ rounds, atOnce, prepared, pool, dockerSocket }: StartOptions): Promise<void> {
  makeImage();
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const watched = join(directory, 'engine.sock');
  const engine = await watchEngine(watched, dockerSocket);
  const common = { directory, socket: dockerSocket, image: IMAGE };
  const sides: Side[] = [];
  const cpu = cpus();
  console.log(
    `${cpu[0]?.model.trim()}, ${cpu.length} processors, load ${loadavg()[0]!.toFixed(1)}; Node ${process.versions.node}; ` +
      `${rounds} rounds, ${prepared} prepared networks\n`,
  );
  try {
    sides.push(dockerSide(dockerSocket, IMAGE), await runcSide(directory, dockerSocket, IMAGE));
    if (pool > 0) {
      const commanded = { runtime: { cmd: ['sleep', '600'], entrypoint: [] } };
      sides.push(
        await serviceSide({ ...common, name: 'sandkeep, from a pool', prepared, pool }),
        await serviceSide({
          ...common,
          name: 'sandkeep, from a pool, with a command',
          prepared,
          pool,
          spec: commanded,
        }),
      );
    }
    sides.push(
      await serviceSide({ ...common, name: 'sandkeep', prepared }),
      await serviceSide({ ...common, name: 'sandkeep, nothing prepared', prepared: 0 }),
      await serviceSide({
        ...common,
        name: 'sandkeep without network',
        prepared: 0,
        spec: { network: { enabled: false } },
      }),
    );
    await compareSingles(sides, rounds);
    for (const many of atOnce) await compareBursts(sides, many, Math.max(1, Math.ceil(rounds / many)));
    const seen = await serviceSide({ ...common, socket: watched, name: 'sandkeep, watched', prepared });
    sides.push(seen);
    await showParts(seen, engine.calls, rounds);
  } finally {
    for (const side of sides) await side.close();
    engine.close();
    rmSync(directory, { recursive: true, force: true });
  }
}

async function compareSingles(sides: readonly Side[], rounds: number): Promise<void> {
  const times = new Map(sides.map(({ name }) => [name, new Map<Step, number[]>()]));
  // The first round warms caches up.
  for (let round = -1; round < rounds; round += 1) {
    for (const side of sides) {
      await side.settle?.();
      const found = await timeOne(side, `bench-${round + 1}-${Date.now().toString(36)}`);
      if (round < 0) continue;
      for (const [step, millis] of found) push(times.get(side.name)!, step, millis);
    }
  }
  const base = times.get(sides[0]!.name)!;
  const rows = STEPS.flatMap((step) =>
    sides.flatMap(({ name }) => {
      const values = times.get(name)!.get(step);
      if (!values) return [];
      const ratio = median(values) / median(base.get(step) ?? values);
      return [[step, name, ...quantiles(values), ratio.toFixed(2)]];
    }),
  );
  console.log(table(['ONE AT A TIME', 'BY', 'P50 ms', 'P90 ms', 'P99 ms', 'OF DOCKER'], rows));
}

async function timeOne(side: Side, name: string): Promise<Map<Step, number>> {
  const times = new Map<Step, number>();
  const timed = async <Result>(step: Step, work: () => Promise<Result>, since = performance.now()) => {
    const result = await work();
    times.set(step, performance.now() - since);
    return result;
  };
  const begun = performance.now();
  const started = await timed('running', () => side.start(name));
  await timed('first output', () => started.exec(), begun);
  await timed('next command', () => started.exec());
  if (started.stop) await timed('stop', () => started.stop!());
  if (started.again) {
    await timed('start again', async () => {
      await started.again!();
      await started.exec();
    });
  }
  await timed('delete', () => started.remove());
  return times;
}

async function compareBursts(sides: readonly Side[], many: number, rounds: number): Promise<void> {
  const each = new Map<string, number[]>();
  const all = new Map<string, number[]>();
  for (let round = 0; round < rounds; round += 1) {
    for (const side of sides) {
      await side.settle?.();
      const begun = performance.now();
      const started = await Promise.all(
        Array.from({ length: many }, async (_, index): Promise<Started> => {
          const one = await side.start(`burst-${many}-${index}-${Date.now().toString(36)}`);
          await one.exec();
          push(each, side.name, performance.now() - begun);
          return one;
        }),
      );
      push(all, side.name, performance.now() - begun);
      for (const one of started) await one.remove();
    }
  }
  const base = median(all.get(sides[0]!.name)!);
  const rows = sides.map(({ name }) => [
    name,
    ...quantiles(each.get(name)!),
    median(all.get(name)!).toFixed(0),
    (median(all.get(name)!) / base).toFixed(2),
  ]);
  const title = `FIRST OUTPUT OF ${many} AT ONCE`;
  console.log(`\n${table([title, 'P50 ms', 'P90 ms', 'P99 ms', 'ALL ms', 'OF DOCKER'], rows)}`);
}

/** The parts of a start, by the calls of the engine in between. */
async function showParts(side: Side, calls: EngineCall[], rounds: number): Promise<void> {
  const parts = new Map<string, number[]>();
  for (let round = -1; round < rounds; round += 1) {
    await side.settle?.();
    calls.length = 0;
    const begun = performance.now();
    const started = await side.start(`parts-${round + 1}`);
    const running = performance.now();
    await started.exec();
    const ended = performance.now();
    const container = calls.find(({ line }) => line.includes('/containers/create?name=sandkeep-parts'));
    const begins = calls.find((call) => / \/containers\/[0-9a-f]{64}\/start/.test(call.line));
    const network = calls.find(
      ({ line }) => line.includes('/sandkeep-net-') || line.includes('=sandkeep-net-'),
    );
    if (round >= 0 && container && begins && network) {
      const marks: [string, number][] = [
        ['request, transaction, notification, placement, image', network.begun],
        ['network and its rules', container.begun],
        ['create of the container', container.answered],
        ['mounts and files', begins.begun],
        ['start of the container: engine, runtime, kernel', begins.answered],
        ['record of the start, notification, answer', running],
        ['first command: agent, answer', ended],
      ];
      let from = begun;
      for (const [name, until] of marks) {
        push(parts, name, until - from);
        from = until;
      }
    }
    await started.remove();
  }
  const rows = [...parts].map(([name, values]) => [name, ...quantiles(values)]);
  console.log(`\n${table(['PARTS OF A START', 'P50 ms', 'P90 ms', 'P99 ms'], rows)}`);
}

function push<Key>(map: Map<Key, number[]>, key: Key, value: number): void {
  map.set(key, [...(map.get(key) ?? []), value]);
}

function quantiles(values: readonly number[]): string[] {
  const sorted = values.toSorted((a, b) => a - b);
  return [0.5, 0.9, 0.99].map((part) =>
    sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * part))]!.toFixed(0),
  );
}
