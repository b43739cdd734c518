import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { defineEngine } from '../../engine/definition.js';
import { machineCapacity } from '../../engine/machine-capacity.js';
import { integer } from '../../options/types.js';

const DIRECTORY = 'simulated';

export const simulated = defineEngine({
  name: 'simulated',
  label: 'simulated engine',
  options: {
    simulatedStartMs: {
      type: integer('a number of milliseconds', 0, 3_600_000),
      description: 'duration of a start in the simulated runtime, in milliseconds',
      default: 0,
    },
    simulatedStopMs: {
      type: integer('a number of milliseconds', 0, 3_600_000),
      description: 'duration of a stop in the simulated runtime, in milliseconds',
      default: 0,
    },
    simulatedFailures: {
      type: integer('a percentage', 0, 100),
      description: 'share of the starts that fail in the simulated runtime, in percent',
      default: 0,
    },
  },
  address: [],
  automatic: 'fallback',
  isInProcess: true,
  hasVolumeDirectories: true,
  directory: DIRECTORY,
  remedy: '',

  async connect(options, { dataDir, capacity = {}, sharedCpuMillis, observes = false }) {
    const { SimulatedRuntime } = await import('./runtime.js');
    const directory = join(dataDir, DIRECTORY);
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const runtime = new SimulatedRuntime(directory, {
      startMs: options.simulatedStartMs,
      stopMs: options.simulatedStopMs,
      failStart: () => (Math.random() * 100 < options.simulatedFailures ? 'a simulated failure' : undefined),
      sharedCpuMillis,
      capacity: { ...machineCapacity(), ...capacity },
    });
    // It reads its record then. The other engines have one of their own.
    if (observes) await runtime.takeOver({ valid: true });
    return runtime;
  },
  explain: (error) => String(error),
});
