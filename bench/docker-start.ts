import Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../src/cli/table.js';
import { GuestInit } from '../src/engines/docker/guest-init.js';
import { DockerRuntime } from '../src/engines/docker/runtime.js';
import type { Run } from '../src/engine/runtime.js';
import { VolumeStore } from '../src/volumes/storage/store.js';
import { runSpecOf } from '../test/support/run-spec.js';

const NEVER = new AbortController().signal;

/** Prints the milliseconds of a start with the Docker runtime, with a network and without. */
export async function dockerStart(socketPath: string, rounds: number): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const runtime = await DockerRuntime.connect(randomUUID(), {
    socketPath,
    volumes: new VolumeStore(directory),
  });
  const docker = new Docker({ socketPath });
  const { image } = new GuestInit(docker, (await docker.info()).Architecture);
  console.log(`${runtime.description}; ${rounds} rounds\n`);
  const times = new Map<string, number[]>();
  const timed = async (what: string, networkEnabled: boolean, work: () => Promise<void>) => {
    const begun = performance.now();
    await work();
    const name = `${what}, ${networkEnabled ? 'with' : 'without'} a network`;
    times.set(name, [...(times.get(name) ?? []), performance.now() - begun]);
  };
  for (let round = 0; round < rounds; round += 1) {
    for (const networkEnabled of [false, true]) {
      const sandboxId = randomUUID();
      const run = (): Run => ({
        orgId: sandboxId,
        sandboxId,
        runId: randomUUID(),
        name: 'bench',
        spec: runSpecOf(image, { networkEnabled }),
        secrets: { registry: null, values: {} },
      });
      await timed('first start', networkEnabled, () => runtime.start(run(), NEVER));
      await runtime.stop(sandboxId, 0);
      // A listing stops the holder of the network, as in the service.
      await runtime.list();
      await timed('start again', networkEnabled, () => runtime.start(run(), NEVER));
      await timed('removal', networkEnabled, () => runtime.destroy(sandboxId));
    }
  }
  await runtime.close();
  rmSync(directory, { recursive: true });
  const rows = [...times]
    .toSorted(([a], [b]) => a.localeCompare(b))
    .map(([name, values]) => {
      const sorted = values.toSorted((a, b) => a - b);
      const shown = [sorted[0]!, sorted[Math.floor(sorted.length / 2)]!, sorted.at(-1)!];
      return [name, ...shown.map((value) => value.toFixed(0))];
    });
  console.log(table(['DOCKER', 'MIN ms', 'MEDIAN ms', 'MAX ms'], rows));
}
