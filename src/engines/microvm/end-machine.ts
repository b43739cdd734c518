import { sleep } from '../../lib/sleep.js';
import type { SandboxPlaces } from './places.js';
import { isAlive, isRunning } from './processes.js';
import type { ProcessIdentity, RunRecord } from './record.js';
import { requestStop } from './supervisor.js';

const SETTLE_MS = 20;
/** A monitor that was killed ends in less, unless its disk hangs. */
const KILLED_MS = 30_000;

/** Ends a run, and waits for its end. On a full disk that is when its record has room. */
export async function endMachine(places: SandboxPlaces, record: RunRecord, graceMs: number): Promise<void> {
  // A supervisor that was killed takes its monitor with it.
  if (!(await requestStop(places.run, graceMs))) kill(record.monitor);
  await untilEnded(places, record);
}

/** Ends a run whose record nobody needs. */
export async function abandonMachine(places: SandboxPlaces, record: RunRecord): Promise<void> {
  await requestStop(places.run, 0, KILLED_MS);
  // The kernel kills its programs with it.
  kill(record.supervisor);
  kill(record.monitor);
  await untilEnded(places, record);
}

export async function untilEnded({ directory }: SandboxPlaces, record: RunRecord): Promise<void> {
  const limit = performance.now() + KILLED_MS;
  while (isAlive(record)) {
    if (performance.now() > limit) throw new Error(`the monitor of the sandbox in ${directory} does not end`);
    await sleep(SETTLE_MS);
  }
}

function kill(process_: ProcessIdentity | undefined): void {
  if (process_ && isRunning(process_)) process.kill(process_.pid, 'SIGKILL');
}
