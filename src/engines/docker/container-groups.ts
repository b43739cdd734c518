import { readFile } from 'node:fs/promises';

export const ROOT = '/sys/fs/cgroup';

/**
 * The paths of the control groups of a container below `ROOT`, by controller; `''` in version 2. Undefined where this
 * process cannot see them: the engine is elsewhere, or has another namespace of processes.
 */
export async function readGroups(containerId: string, pid: number): Promise<Map<string, string> | undefined> {
  const text = await readFile(`/proc/${pid}/cgroup`, 'utf8').catch(() => undefined);
  if (text === undefined) return undefined;
  const lines = text.trimEnd().split('\n');
  const groups = new Map(
    lines.flatMap((line) => {
      const [, controllers = '', ...path] = line.split(':');
      return controllers.split(',').map((controller) => [controller, path.join(':')] as const);
    }),
  );
  // The kernel may have given the number to another process.
  return [...groups.values()].some((path) => path.includes(containerId)) ? groups : undefined;
}
