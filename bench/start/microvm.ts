import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../../src/cli/table.js';
import { placesOf } from '../../src/engines/microvm/places.js';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { IMAGE } from '../../test/support/microvm/service.js';
import { median } from '../median.js';
import { machineLine, serveOnMicrovm, type MicrovmOptions } from '../microvm-service.js';
import { Client } from '../neighbours/client.js';
import { checkOutput, WORD } from './side.js';

export interface MicrovmStartOptions extends MicrovmOptions {
  rounds: number;
}

const MEMORY_MIB = 192;
const MIB = 1024 * 1024;
const STEPS = ['first output', 'pause', 'resume, first output', 'stop', 'start again', 'delete'] as const;
type Step = (typeof STEPS)[number];

/** A virtual machine by the API: its start, its pause and resume, and what it costs beside its memory. */
export async function startMicrovm({ rounds, ...options }: MicrovmStartOptions): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  console.log(machineLine(options, `${rounds} rounds, sandboxes of ${MEMORY_MIB} MiB`));
  const server = await serveOnMicrovm(directory, options, ['--preview-host', 'none']);
  const client = new Client(`http://${server.host}:${server.port}`, server.key!);
  const times = new Map<Step, number[]>();
  const sizes = new Map<string, number[]>();
  const note = <Key>(map: Map<Key, number[]>, key: Key, value: number) =>
    void map.set(key, [...(map.get(key) ?? []), value]);
  try {
    // The first round warms caches up.
    for (let round = -1; round < rounds; round += 1) {
      const timed = async (step: Step, work: () => Promise<unknown>) => {
        const begun = performance.now();
        await work();
        if (round >= 0) note(times, step, performance.now() - begun);
      };
      let id = '';
      const exec = async () => {
        const command = { cmd: 'echo', args: [WORD] };
        checkOutput(
          (await client.json<{ stdout: string }>('POST', `/v1/sandboxes/${id}/exec`, command)).stdout,
        );
      };
      await timed('first output', async () => {
        const made = await client.json<{ id: string; status: string }>(
          'POST',
          '/v1/sandboxes?start=true&wait_for=running',
          {
            name: `bench-${round + 1}`,
            image: { type: 'oci', reference: IMAGE },
            pull_policy: 'never',
            resources: { vcpus: 1, memory_mib: MEMORY_MIB },
            network: { enabled: false },
          },
        );
        id = made.id;
        if (made.status !== 'running') throw new Error(`a sandbox is ${made.status}`);
        await exec();
      });
      const places = placesOf(join(directory, 'microvm'), id);
      const monitor = (await readRecord(places))?.monitor;
      const rss = /^VmRSS:\s+(\d+) kB/m.exec(await readFile(`/proc/${monitor!.pid}/status`, 'utf8'))?.[1];
      const files = diskOf(places.directory);
      await timed('pause', () => client.json('POST', `/v1/sandboxes/${id}/pause?wait_for=paused`));
      const saved = (await readRecord(places))?.savedBytes ?? 0;
      await timed('resume, first output', async () => {
        await client.json('POST', `/v1/sandboxes/${id}/resume?wait_for=running`);
        await exec();
      });
      await timed('stop', () => client.json('POST', `/v1/sandboxes/${id}/stop?wait_for=stopped`));
      await timed('start again', async () => {
        await client.json('POST', `/v1/sandboxes/${id}/start?wait_for=running`);
        await exec();
      });
      await timed('delete', () => client.json('DELETE', `/v1/sandboxes/${id}`));
      if (round < 0) continue;
      note(sizes, 'memory of the monitor, with the used memory of the sandbox', Number(rss) / 1024);
      note(sizes, 'files of a second sandbox of the image', files / MIB);
      note(sizes, 'saved memory of a paused sandbox', saved / MIB);
    }
    console.log(
      table(
        ['ONE AT A TIME', 'P50 ms', 'MOST ms'],
        STEPS.map((step) => rowOf(step, times.get(step)!, 0)),
      ),
    );
    console.log(
      `\n${table(
        ['SIZE', 'P50 MiB', 'MOST MiB'],
        [...sizes].map(([name, all]) => rowOf(name, all, 1)),
      )}`,
    );
  } finally {
    await server.stop();
    rmSync(directory, { recursive: true, force: true });
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
