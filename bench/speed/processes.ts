import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import type { Store } from './store.js';

export interface Server {
  child: ChildProcess;
  pid: number;
  host: string;
  port: number;
  /** The key of the first start on an empty directory. */
  key?: string;
  stop(): Promise<void>;
}

/** Starts a Node program that prints its address as JSON when it serves. */
export async function startServer(args: readonly string[]): Promise<Server> {
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'exit');
  const lines = createInterface(child.stdout);
  const line = await Promise.race([once(lines, 'line'), ended.then(() => undefined)]);
  if (line === undefined) throw new Error(`${args.join(' ')} ended`);
  const ready = JSON.parse(line[0] as string) as { address: string; first_key?: { key: string } };
  const { hostname, port } = new URL(ready.address);
  const key = ready.first_key?.key;
  const stop = async () => {
    child.kill('SIGTERM');
    await ended;
  };
  return {
    child,
    pid: child.pid!,
    host: hostname,
    port: Number(port),
    ...(key === undefined ? {} : { key }),
    stop,
  };
}

/** The service of this checkout. */
export const PROGRAM = join(PACKAGE_ROOT, 'bin', 'sandkeep');

/** Starts the service on a free port. `profile`: a directory for a profile of its CPU time, written at its end. */
export async function startService(options: readonly string[], profile?: string): Promise<Server> {
  const node = profile === undefined ? [] : ['--cpu-prof', '--cpu-prof-dir', profile];
  return startServer([
    ...node,
    PROGRAM,
    'serve',
    '--json',
    '--port',
    '0',
    '--log-level',
    'error',
    ...options,
  ]);
}

/** Starts the service on a store. */
export async function serve(store: Store, profile?: string): Promise<Server> {
  const options = [
    // These limits are set, but out of reach.
    '--runtime',
    'simulated',
    '--rate-limit',
    '1000000',
    '--capacity-vcpus',
    '1000000',
    '--capacity-memory-mib',
    '999999999',
    '--database-url',
    store.url,
    '--data-dir',
    store.directory,
  ];
  return startService(options, profile);
}

const MICROS_PER_TICK = 10_000;

/** CPU microseconds of a process and all its descendants, including ended ones. */
export function cpuMicros(pid: number): number {
  const [own, ended] = ticks(pid);
  return (own + ended) * MICROS_PER_TICK + children(pid).reduce((sum, child) => sum + cpuMicros(child), 0);
}

function ticks(pid: number): [own: number, ended: number] {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // The name of the program, in brackets, may hold any text; utime is the twelfth field after it.
    const fields = text
      .slice(text.lastIndexOf(')') + 2)
      .split(' ')
      .map(Number);
    return [fields[11]! + fields[12]!, fields[13]! + fields[14]!];
  } catch {
    return [0, 0];
  }
}

/** MiB of a process and all its descendants. PSS divides shared pages among their users. */
export function memoryMib(pid: number): { rss: number; pss: number } {
  return children(pid)
    .map(memoryMib)
    .reduce((sum, each) => ({ rss: sum.rss + each.rss, pss: sum.pss + each.pss }), ownMib(pid));
}

/** MiB of a process without its descendants. */
export function ownMib(pid: number): { rss: number; pss: number } {
  return { rss: kib(pid, 'Rss') / 1024, pss: kib(pid, 'Pss') / 1024 };
}

function kib(pid: number, what: string): number {
  try {
    const text = readFileSync(`/proc/${pid}/smaps_rollup`, 'utf8');
    return Number(new RegExp(`^${what}:\\s+(\\d+) kB`, 'm').exec(text)?.[1] ?? 0);
  } catch {
    return 0;
  }
}

function children(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8');
    return text.split(' ').filter(Boolean).map(Number);
  } catch {
    return [];
  }
}
