import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { explainUnreachable } from './docker-unreachable.js';
import type { Guarded } from './network-policy.js';
import type { Capacity, Runtime, RuntimeChoice } from './runtime.js';
import { SimulatedRuntime, type SimulatedOptions } from './simulated.js';
import { ExplainedError } from '../lib/explained.js';
import type { VolumeStore } from '../volumes/store.js';

export interface RuntimeOptions {
  choice: RuntimeChoice;
  dockerSocket: string;
  dockerNetwork?: string | undefined;
  dockerRuntime?: string | undefined;
  dockerAllow?: readonly Guarded[] | undefined;
  dataDir: string;
  volumes: VolumeStore;
  instanceId: string;
  /** In place of what the engine has. */
  capacity?: Partial<Capacity>;
  simulated?: SimulatedOptions;
}

/**
 * Opens the runtime that was chosen. `auto` takes Docker when its socket answers and the simulated one otherwise; the
 * reason is in `fallback` then. Throws ExplainedError when Docker was asked for and does not
 * answer, or does not have the runtime class that was asked for.
 */
export async function openRuntime(options: RuntimeOptions): Promise<{ runtime: Runtime; fallback?: string }> {
  if (options.choice === 'simulated') return { runtime: openSimulated(options) };
  try {
    return { runtime: await openDocker(options) };
  } catch (cause) {
    // The engine answers, but not to what was asked of it: nothing else may stand in for it.
    if (cause instanceof ExplainedError) throw cause;
    const { reason } = explainUnreachable(cause, options.dockerSocket);
    if (options.choice === 'docker') {
      throw new ExplainedError(
        `${reason}: start it, name its socket with --docker-socket, or use --runtime simulated`,
        {
          cause,
        },
      );
    }
    return { runtime: openSimulated(options), fallback: reason };
  }
}

export async function openDocker({
  instanceId,
  dockerSocket,
  dockerNetwork,
  dockerRuntime,
  dockerAllow = [],
  volumes,
  capacity = {},
}: RuntimeOptions): Promise<Runtime> {
  // Loaded only here: the client library takes as long to load as the rest of the worker.
  const { DockerRuntime } = await import('./docker.js');
  return DockerRuntime.connect(instanceId, {
    ...{ socketPath: dockerSocket, network: dockerNetwork, runtimeClass: dockerRuntime, allow: dockerAllow },
    ...{ volumes, capacity },
  });
}

function openSimulated({ dataDir, capacity = {}, simulated = {} }: RuntimeOptions): Runtime {
  const directory = join(dataDir, 'simulated');
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  return new SimulatedRuntime(directory, { ...simulated, capacity });
}
