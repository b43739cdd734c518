import { sleep } from '../../lib/sleep.js';
import type { SandboxPlaces } from './places.js';
import { isAlive, isRunning } from './processes.js';
import type { RunRecord } from './record.js';
import { requestStop } from './supervisor.js';

const SETTLE_MS = 20;
/** A monitor that was killed ends in less, unless its disk hangs. */
const KILLED_MS = 30_000;

/** Ends a run, and waits for its end. */
export async function endMachine(places: SandboxPlaces, record: RunRecord, graceMs: number): Promise<void> {
  const { monitor } = record;
  // A supervisor that was killed takes its monitor with it.
  if (!(await requestStop(places.run, graceMs)) && monitor && isRunning(monitor))
    process.kill(monitor.pid, 'SIGKILL');
  await untilEnded(places, record);
}

export async function untilEnded({ directory }: SandboxPlaces, record: RunRecord): Promise<void> {
  const limit = performance.now() + KILLED_MS;
  while (isAlive(record)) {
    if (performance.now() > limit) throw new Error(`the monitor of the sandbox in ${directory} does not end`);
    await sleep(SETTLE_MS);
  }
}
