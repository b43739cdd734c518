import { readFileSync } from 'node:fs';
import { IMAGE } from '../../test/support/microvm/service.js';
import type { Client } from '../neighbours/client.js';
import { checkOutput, WORD } from './side.js';

export const MEMORY_MIB = 192;
const KIB_PER_MIB = 1024;
/** The machine keeps so much: with less, the kernel could end other programs. */
const KEPT_MIB = 1024;

/** The fields in which a pool and the creates that take from it are the same. */
export const FIELDS = {
  image: { type: 'oci', reference: IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: MEMORY_MIB },
  network: { enabled: false },
};

/** Starts a sandbox, and runs a command that prints. */
export async function startToOutput(
  client: Client,
  name: string,
): Promise<{ id: string; source: { start: string } | null }> {
  const made = await client.json<{ id: string; status: string; source: { start: string } | null }>(
    'POST',
    '/v1/sandboxes?start=true&wait_for=running&wait_timeout=60',
    { name, ...FIELDS },
  );
  if (made.status !== 'running') throw new Error(`the sandbox ${name} is ${made.status}`);
  await output(client, made.id);
  return made;
}

export async function output(client: Client, id: string): Promise<void> {
  const command = { cmd: 'echo', args: [WORD] };
  checkOutput((await client.json<{ stdout: string }>('POST', `/v1/sandboxes/${id}/exec`, command)).stdout);
}

/** Starts sandboxes until so many run at once, or until the machine has little memory left. The caller ends them. */
export async function fillMachine(client: Client, most: number): Promise<string> {
  const before = availableMib();
  const begun = performance.now();
  let running = 0;
  let reason = '';
  while (running < most && reason === '') {
    try {
      await startToOutput(client, `fill-${running}`);
      running += 1;
    } catch (error) {
      reason = (error as Error).message;
    }
    if (availableMib() < KEPT_MIB + MEMORY_MIB) reason ||= `the machine keeps ${KEPT_MIB} MiB`;
  }
  const seconds = ((performance.now() - begun) / 1000).toFixed(0);
  const each = ((before - availableMib()) / Math.max(1, running)).toFixed(0);
  return (
    `${running} sandboxes of ${MEMORY_MIB} MiB ran at once after ${seconds} s. Each took ${each} MiB of the ` +
    `${before.toFixed(0)} MiB that the machine had available${running < most ? `. The end: ${reason}` : ''}`
  );
}

function availableMib(): number {
  return Number(/^MemAvailable: +(\d+) kB$/m.exec(readFileSync('/proc/meminfo', 'utf8'))![1]) / KIB_PER_MIB;
}
