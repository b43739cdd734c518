import { readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { removedBytes, type RemovedBytes } from '../../engine/removed-files.js';
import { readGroups, ROOT } from './container-groups.js';

/** Undefined where this process cannot see the processes of the container. */
export async function removedByContainer(
  containerId: string,
  pid: number,
  signal: AbortSignal,
): Promise<RemovedBytes | undefined> {
  const groups = await readGroups(containerId, pid);
  const [hierarchy, path, list] = groups?.has('memory')
    ? (['memory', groups.get('memory')!, 'tasks'] as const)
    : (['', groups?.get('') ?? '', 'cgroup.threads'] as const);
  // Another group would be that of the service of the engine, or that of the whole machine.
  if (!path.includes(containerId) || path.includes('..')) return undefined;
  // Its files have a number that no other file system has.
  const root = await stat(`/proc/${pid}/root`).catch(() => undefined);
  if (!root) return undefined;
  const group = join(ROOT, hierarchy, path);
  const onDisks = await removedBytes(async () => threadsIn(group, list), signal);
  const own = onDisks.get(root.dev) ?? 0;
  onDisks.delete(root.dev);
  return { own, onDisks };
}

/** Also those of groups that an init system in the container has made. */
async function threadsIn(group: string, list: string): Promise<number[]> {
  const entries = await readdir(group, { withFileTypes: true, recursive: true }).catch(() => []);
  const lists = entries.filter(({ name }) => name === list);
  const texts = await Promise.all(
    lists.map(async ({ parentPath, name }) => readFile(join(parentPath, name), 'utf8').catch(() => '')),
  );
  return texts.flatMap((text) => text.split('\n').filter(Boolean).map(Number));
}
