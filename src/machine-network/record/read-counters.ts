import { spawn } from 'node:child_process';
import { text } from 'node:stream/consumers';
import type { NetworkNamespace } from '../namespace.js';
import { parseReading, RECORD_TABLE, recordTable, type Reading } from './record-table.js';

/** For a loaded machine: neither program waits. */
const TIMEOUT_MS = 10_000;

/** Undefined: the namespace has no such counters, or its owner has ended. */
export async function readCounters(namespace: NetworkNamespace): Promise<Reading | undefined> {
  const list = ['nft', '-j', 'list', 'table', 'inet', RECORD_TABLE];
  const json = await namespace
    .enter(async (descriptor) => run('nsenter', ['--net=/proc/self/fd/3', ...list], '', descriptor))
    .catch(() => undefined);
  return json === undefined ? undefined : parseReading(json);
}

/** Whether the kernel and its programs have counters by destination. */
export async function canRecord(): Promise<boolean> {
  const script = `nft -f - && nft -j list table inet ${RECORD_TABLE}`;
  const json = await run('unshare', ['--net', 'sh', '-c', script], recordTable());
  return json !== undefined && json.includes(RECORD_TABLE);
}

/** The output. Undefined: the program is missing, or has failed. */
async function run(
  program: string,
  args: readonly string[],
  input: string,
  extra?: number,
): Promise<string | undefined> {
  const child = spawn(program, args, {
    stdio: ['pipe', 'pipe', 'ignore', ...(extra === undefined ? [] : [extra])],
    timeout: TIMEOUT_MS,
    killSignal: 'SIGKILL',
  });
  const ended = new Promise<boolean>((resolve) => {
    child.once('error', () => resolve(false));
    child.once('close', (code) => resolve(code === 0));
  });
  child.stdin!.on('error', () => undefined);
  child.stdin!.end(input);
  const [isDone, output] = await Promise.all([ended, text(child.stdout!).catch(() => '')]);
  return isDone ? output : undefined;
}
