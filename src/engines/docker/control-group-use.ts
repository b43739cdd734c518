import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Activity } from '../../engine/runtime.js';
import { readGroups, ROOT } from './container-groups.js';

/**
 * The use of a container, from the files of its control groups and its network. That takes half a millisecond. The
 * engine takes a second. Undefined where this process cannot see them: the engine is elsewhere, or has another
 * namespace of processes.
 */
export async function readControlGroups(containerId: string, pid: number): Promise<Activity | undefined> {
  if (pid === 0) return undefined;
  const groups = await readGroups(containerId, pid);
  if (!groups) return undefined;
  const use = groups.has('memory') ? await readVersion1(groups) : await readVersion2(groups);
  return use && { ...use, ...(await readNetwork(pid)) };
}

async function readVersion1(groups: ReadonlyMap<string, string>): Promise<Activity | undefined> {
  const file = (controller: string, name: string) => {
    const path = groups.get(controller);
    return path === undefined ? Promise.resolve(undefined) : read(join(ROOT, controller, path, name));
  };
  const [cpu, memory, memoryParts, processes, transfers] = await Promise.all([
    file('cpuacct', 'cpuacct.usage'),
    file('memory', 'memory.usage_in_bytes'),
    file('memory', 'memory.stat'),
    file('pids', 'pids.current'),
    file('blkio', 'blkio.throttle.io_service_bytes_recursive'),
  ]);
  if (cpu === undefined) return undefined;
  return {
    cpuMicros: Number(cpu) / 1_000,
    ...memoryOf(memory, valueOf(memoryParts, 'total_inactive_file')),
    ...(processes === undefined ? {} : { processes: Number(processes) }),
    ...transfersOf(transfers, /^\d+:\d+ Read (\d+)$/gm, /^\d+:\d+ Write (\d+)$/gm),
  };
}

async function readVersion2(groups: ReadonlyMap<string, string>): Promise<Activity | undefined> {
  const path = groups.get('');
  if (path === undefined) return undefined;
  const file = (name: string) => read(join(ROOT, path, name));
  const [cpu, memory, memoryParts, processes, transfers] = await Promise.all(
    ['cpu.stat', 'memory.current', 'memory.stat', 'pids.current', 'io.stat'].map(file),
  );
  const cpuMicros = valueOf(cpu, 'usage_usec');
  if (cpuMicros === undefined) return undefined;
  return {
    cpuMicros,
    ...memoryOf(memory, valueOf(memoryParts, 'inactive_file')),
    ...(processes === undefined ? {} : { processes: Number(processes) }),
    ...transfersOf(transfers, /\brbytes=(\d+)/g, /\bwbytes=(\d+)/g),
  };
}

/** By the host's view of the network namespace: a file that the guest cannot replace. */
async function readNetwork(pid: number): Promise<Pick<Activity, 'receivedBytes' | 'sentBytes'>> {
  const text = await read(`/proc/${pid}/net/dev`);
  if (text === undefined) return {};
  let receivedBytes = 0;
  let sentBytes = 0;
  for (const line of text.split('\n').slice(2)) {
    const [name, numbers] = line.split(/:\s*/);
    if (numbers === undefined || name!.trim() === 'lo') continue;
    const columns = numbers.split(/\s+/);
    receivedBytes += Number(columns[0]);
    sentBytes += Number(columns[8]);
  }
  return { receivedBytes, sentBytes };
}

function memoryOf(total: string | undefined, droppable = 0): Pick<Activity, 'memoryBytes'> {
  return total === undefined ? {} : { memoryBytes: Math.max(0, Number(total) - droppable) };
}

function transfersOf(
  text: string | undefined,
  reads: RegExp,
  writes: RegExp,
): Pick<Activity, 'diskReadBytes' | 'diskWrittenBytes'> {
  if (text === undefined) return {};
  const sum = (pattern: RegExp) =>
    [...text.matchAll(pattern)].reduce((all, [, bytes]) => all + Number(bytes), 0);
  return { diskReadBytes: sum(reads), diskWrittenBytes: sum(writes) };
}

function valueOf(text: string | undefined, key: string): number | undefined {
  const found = text === undefined ? null : new RegExp(`^${key} (\\d+)$`, 'm').exec(text);
  return found ? Number(found[1]) : undefined;
}

/** Undefined: it does not exist, or has ended with its process. */
async function read(path: string): Promise<string | undefined> {
  return readFile(path, 'utf8').catch(() => undefined);
}
