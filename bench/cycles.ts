import { table } from '../src/cli/table.js';
import { sleep } from '../src/lib/sleep.js';
import { captureOf } from './capture-of.js';
import { median } from './median.js';
import type { Client } from './neighbours/client.js';

/** The fields of each create. */
interface Fields {
  image: object;
  [field: string]: unknown;
}

interface Bounds {
  cycles: number;
  /** No further cycle begins after so many minutes. */
  minutes: number;
  atOnce: number;
}

const SHOWN_EVERY = 25;
const STARTED = '/v1/sandboxes?start=true&wait_for=running&wait_timeout=120';
const LONGEST_REMOVAL_MS = 10 * 60_000;
const POLL_MS = 1_000;
const FORK_POLL_MS = 50;

type Times = Record<'create' | 'snapshot' | 'start of it' | 'fork of it' | 'deletes', number[]>;

/**
 * Creates a sandbox, makes a snapshot, starts another sandbox from it, forks that one, and deletes everything, many
 * times. Prints the times.
 */
export async function runCycles(client: Client, fields: Fields, bounds: Bounds): Promise<void> {
  const { cycles, minutes, atOnce } = bounds;
  const times: Times = { create: [], snapshot: [], 'start of it': [], 'fork of it': [], deletes: [] };
  let begunCycles = 0;
  const begun = performance.now();
  const work = async () => {
    while (begunCycles < cycles && performance.now() - begun < minutes * 60_000) {
      await cycle(client, fields, (begunCycles += 1), times);
      if (times.deletes.length % SHOWN_EVERY === 0) {
        const passed = ((performance.now() - begun) / 60_000).toFixed(0);
        console.error(`${times.deletes.length} of ${cycles} cycles after ${passed} minutes`);
      }
    }
  };
  await Promise.all(Array.from({ length: atOnce }, work));
  const seconds = (performance.now() - begun) / 1000;
  const rows = Object.entries(times).map(([name, values]) => [
    name,
    ...[Math.min(...values), median(values), Math.max(...values)].map((ms) => ms.toFixed(0)),
  ]);
  console.log(table([`${begunCycles} CYCLES, ${atOnce} AT ONCE`, 'MIN ms', 'MEDIAN ms', 'MAX ms'], rows));
  console.log(`\n${(begunCycles / seconds).toFixed(2)} cycles a second\n`);
}

/** The state of the engine when it changes no more, or equals `wanted`. */
export async function untilEqual<State>(
  measure: () => Promise<State>,
  isEqual: (a: State, b: State) => boolean,
  wanted?: State,
): Promise<State> {
  const deadline = performance.now() + LONGEST_REMOVAL_MS;
  for (let last = wanted; ;) {
    const found = await measure();
    const isEnd = last !== undefined && isEqual(found, last);
    if (isEnd || performance.now() > deadline) return found;
    last = wanted ?? found;
    await sleep(wanted ? POLL_MS : 15 * POLL_MS);
  }
}

async function cycle(client: Client, fields: Fields, number: number, times: Times): Promise<void> {
  const timed = async <T>(name: keyof Times, work: () => Promise<T>): Promise<T> => {
    const begun = performance.now();
    const result = await work();
    times[name].push(performance.now() - begun);
    return result;
  };
  const source = await timed('create', async () =>
    startSandbox(client, { ...fields, name: `source-${number}` }),
  );
  await client.json('POST', `/v1/sandboxes/${source}/exec`, {
    cmd: 'sh',
    args: ['-c', `echo ${number} > /cycle`],
  });
  const snapshot = await timed('snapshot', async () => captureOf(client, source, `snapshot-${number}`));
  const made = await timed('start of it', async () =>
    startSandbox(client, {
      ...fields,
      name: `made-${number}`,
      image: { type: 'disk_snapshot', id: snapshot },
    }),
  );
  const copies = await timed('fork of it', async () => forkOf(client, made));
  await timed('deletes', async () => {
    await client.json('DELETE', `/v1/snapshots/${snapshot}`);
    for (const id of [source, made, ...copies]) await client.json('DELETE', `/v1/sandboxes/${id}`);
  });
}

/** Returns the id of a sandbox that runs. */
export async function startSandbox(client: Client, fields: Fields & { name: string }): Promise<string> {
  return (await client.json<{ id: string }>('POST', STARTED, fields)).id;
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
