import { readFileSync } from 'node:fs';
import { sleep } from '../../../src/lib/sleep.js';
import type { GatedService } from './gated-service.js';

const MIB = 1024 * 1024;
const SAMPLE_MS = 50;
/** Buffers and compiled code that every later transfer uses too. */
const WARM_UP_MIB = 32;

const URL = 'https://api.test';
const COMMANDS = {
  down: (bytes: number, option: string) =>
    `curl -sS ${option} -o /dev/null -w '%{size_download}' ${URL}/bytes/${bytes}`,
  up: (bytes: number, option: string) =>
    `head -c ${bytes} /dev/zero | curl -sS ${option} -T - -o /dev/null -w '%{size_upload}' ${URL}/echo`,
};

export interface Transferred {
  direction: 'down' | 'up';
  mibPerSecond: number;
  /** The most memory of the gateway during the transfer, beyond that before it. */
  growthMib: number;
  mostMib: number;
}

/** Transfers so much in each direction by HTTPS, and measures the memory of the gateway. `option`: of curl. */
export async function transfer(
  service: GatedService,
  id: string,
  { mib, option }: { mib: number; option: string },
): Promise<Transferred[]> {
  const answers: Transferred[] = [];
  for (const direction of ['down', 'up'] as const) {
    const run = async (size: number) => move(service, id, size, COMMANDS[direction](size * MIB, option));
    await run(WARM_UP_MIB);
    const pid = service.gatewayPid()!;
    const before = residentMib(pid);
    let most = before;
    const ending = new AbortController();
    const sampling = (async () => {
      for (; !ending.signal.aborted; await sleep(SAMPLE_MS, ending.signal))
        most = Math.max(most, residentMib(pid));
    })();
    const began = performance.now();
    await run(mib);
    const seconds = (performance.now() - began) / 1_000;
    ending.abort();
    await sampling;
    answers.push({ direction, mibPerSecond: mib / seconds, growthMib: most - before, mostMib: most });
  }
  return answers;
}

async function move(service: GatedService, id: string, mib: number, command: string): Promise<void> {
  const moved = await service.sh(id, command);
  if (moved !== String(mib * MIB)) throw new Error(`not all of ${mib} MiB arrived: ${moved}`);
}

function residentMib(pid: number): number {
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1_024;
}
