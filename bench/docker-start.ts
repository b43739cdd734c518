import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { table } from '../src/cli/table.js';
import { PAUSE_IMAGE, PAUSE_PROGRAM } from '../src/runtimes/docker-pause.js';
import { DockerRuntime } from '../src/runtimes/docker.js';
import type { Run, RunSpec } from '../src/runtimes/runtime.js';
import { VolumeStore } from '../src/volumes/store.js';

const NEVER = new AbortController().signal;

/** Prints the milliseconds from asking the Docker runtime for a start to its answer, with a network and without. */
export async function dockerStart(socketPath: string, rounds: number): Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-bench-'));
  const runtime = await DockerRuntime.connect(randomUUID(), {
    socketPath,
    volumes: new VolumeStore(directory),
  });
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
        spec: specOf(networkEnabled),
        secrets: { registry: null, values: {} },
      });
      await timed('first start', networkEnabled, () => runtime.start(run(), NEVER));
      await runtime.stop(sandboxId, 0);
      // Stops what holds the network, as in the service.
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

/** A sandbox that does nothing, of an image that is always there. */
function specOf(networkEnabled: boolean): RunSpec {
  return {
    ...{ image: PAUSE_IMAGE, pullPolicy: 'never', entrypoint: [PAUSE_PROGRAM], cmd: null, shell: null },
    ...{ vcpus: 1, memoryMib: 64, diskMib: null, user: null, workdir: null, securityProfile: 'default' },
    ...{ scripts: {}, env: [], labels: {}, rlimits: [], mounts: [], patches: [], init: null, demands: [] },
    ...{ networkEnabled, idleTimeoutSecs: null, maxDurationSecs: null },
  };
}
