import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../../src/cli/table.js';
import { placesOf } from '../../src/engines/microvm/places.js';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { until } from '../../test/support/polling.js';
import { median } from '../median.js';
import { memoryBesideSandbox } from '../microvm-groups.js';
import { machineLine, serveOnMicrovm, type MicrovmOptions } from '../microvm-service.js';
import { Client } from '../neighbours/client.js';
import { FIELDS, fillMachine, MEMORY_MIB, output, startToOutput } from './microvm-sandboxes.js';

export interface MicrovmStartOptions extends MicrovmOptions {
  rounds: number;
  /** The sandboxes that a pool keeps ready. 0: no pool. */
  pool: number;
  /** Undefined: the machine is not filled. */
  fill?: number;
}

const MIB = 1024 * 1024;
const STEPS = [
  'first output',
  'first output, from a pool',
  'pause',
  'resume, first output',
  'stop',
  'start again',
  'delete',
] as const;
const BESIDE = 'memory beside that of the sandbox, target: 60';

type Notes = Map<string, number[]>;

/** A virtual machine by the API: its start, its pause and resume, and its costs beside its memory. */
export async function startMicrovm({ rounds, pool, fill, ...options }: MicrovmStartOptions): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  console.log(machineLine(options, `${rounds} rounds, sandboxes of ${MEMORY_MIB} MiB, a pool of ${pool}`));
  const bounds = ['--rate-limit', '1000000', '--capacity-vcpus', '1000', '--capacity-memory-mib', '1000000'];
  const server = await serveOnMicrovm(directory, options, ['--preview-host', 'none', ...bounds]);
  const client = new Client(`http://${server.host}:${server.port}`, server.key!);
  const notes = { times: new Map() as Notes, sizes: new Map() as Notes };
  try {
    // The first round warms caches up.
    for (let round = -1; round < rounds; round += 1) {
      const found = await measureOne(client, join(directory, 'microvm'), `bench-${round + 1}`);
      if (round >= 0) noteAll(notes, found);
    }
    if (pool > 0) {
      await client.json('PUT', '/v1/pools/bench', { ...FIELDS, size: pool });
      for (let round = 0; round < rounds; round += 1) {
        noteAll(notes, await measureFromPool(client, pool, `pool-${round}`));
      }
      await client.json('DELETE', '/v1/pools/bench');
    }
    const steps = STEPS.filter((step) => notes.times.has(step));
    const times = steps.map((step) => rowOf(step, notes.times.get(step)!, 0));
    console.log(table(['ONE AT A TIME', 'P50 ms', 'MOST ms'], times));
    const sizes = [...notes.sizes].map(([name, all]) => rowOf(name, all, 1));
    console.log(`\n${table(['SIZE', 'P50 MiB', 'MOST MiB'], sizes)}`);
    if (fill !== undefined) console.log(`\n${await fillMachine(client, fill)}`);
  } finally {
    client.close();
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
  }
}

/** Where it is not full in time, an error shows it, with its `last_failure_message`. */
interface Pool {
  ready: number;
}

interface Found {
  times: Map<string, number>;
  sizes: Map<string, number>;
}

async function measureOne(client: Client, engineDirectory: string, name: string): Promise<Found> {
  const found: Found = { times: new Map(), sizes: new Map() };
  const { id } = await timed(found, 'first output', async () => startToOutput(client, name));
  const places = placesOf(engineDirectory, id);
  const { pid } = (await readRecord(places))!.monitor!;
  const rss = /^VmRSS:\s+(\d+) kB/m.exec(await readFile(`/proc/${pid}/status`, 'utf8'))?.[1];
  found.sizes.set('memory of the monitor, with the used memory of the sandbox', Number(rss) / 1024);
  found.sizes.set(BESIDE, memoryBesideSandbox(pid, MEMORY_MIB) / MIB);
  found.sizes.set('files of a second sandbox of the image', diskOf(places.directory) / MIB);
  await timed(found, 'pause', async () => client.json('POST', `/v1/sandboxes/${id}/pause?wait_for=paused`));
  found.sizes.set('saved memory of a paused sandbox', ((await readRecord(places))?.savedBytes ?? 0) / MIB);
  await timed(found, 'resume, first output', async () => {
    await client.json('POST', `/v1/sandboxes/${id}/resume?wait_for=running`);
    await output(client, id);
  });
  await timed(found, 'stop', async () => client.json('POST', `/v1/sandboxes/${id}/stop?wait_for=stopped`));
  await timed(found, 'start again', async () => {
    await client.json('POST', `/v1/sandboxes/${id}/start?wait_for=running`);
    await output(client, id);
  });
  await timed(found, 'delete', async () => client.json('DELETE', `/v1/sandboxes/${id}`));
  return found;
}

/** Waits until the pool is full. The pool starts another sandbox while the command of the taken one runs. */
async function measureFromPool(client: Client, size: number, name: string): Promise<Found> {
  await until(
    async () => client.json<Pool>('GET', '/v1/pools/bench'),
    ({ ready }) => ready === size,
  );
  const found: Found = { times: new Map(), sizes: new Map() };
  const { id, source } = await timed(found, 'first output, from a pool', async () =>
    startToOutput(client, name),
  );
  if (source?.start !== 'warm') throw new Error('the create has not taken a sandbox of the pool');
  await client.json('DELETE', `/v1/sandboxes/${id}`);
  return found;
}

async function timed<Result>(
  { times }: Found,
  step: (typeof STEPS)[number],
  work: () => Promise<Result>,
): Promise<Result> {
  const begun = performance.now();
  const result = await work();
  times.set(step, performance.now() - begun);
  return result;
}

function noteAll(notes: { times: Notes; sizes: Notes }, found: Found): void {
  for (const kind of ['times', 'sizes'] as const)
    for (const [name, value] of found[kind]) {
      notes[kind].set(name, [...(notes[kind].get(name) ?? []), value]);
    }
}

function rowOf(name: string, values: readonly number[], digits: number): string[] {
  return [name, median(values).toFixed(digits), Math.max(...values).toFixed(digits)];
}

/** Without the base, which all sandboxes of an image share. */
function diskOf(directory: string): number {
  const names = readdirSync(directory, { withFileTypes: true }).filter((entry) => entry.isFile());
  return names
    .filter(({ name }) => name !== 'base.erofs')
    .reduce((sum, { name }) => sum + statSync(join(directory, name)).blocks * 512, 0);
}
