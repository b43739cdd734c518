import { opendir, stat } from 'node:fs/promises';
import { join } from 'node:path';

/** Open files, and files that are mapped into memory without being open. Only root may look through the second. */
const HOLDERS = ['fd', 'map_files'];
const READ_AT_ONCE = 256;

/** The bytes of files that a sandbox has removed, and holds open. */
export interface RemovedBytes {
  /** On its own disk. */
  own: number;
  /** By the number of the disk, as `stat` has it. */
  onDisks: ReadonlyMap<number, number>;
}

/**
 * The bytes of files without a name that the processes hold, by the number of the disk. Such a file takes room until
 * the last process closes it, and no walk through directories finds it. Files of processes that this one may not look
 * into are missing. Throws when the signal aborts: a process may hold a million files.
 */
export async function removedBytes(
  pids: Iterable<number>,
  signal: AbortSignal,
): Promise<Map<number, number>> {
  const bytes = new Map<number, number>();
  const counted = new Set<string>();
  for (const pid of pids) {
    for (const holder of HOLDERS) {
      for await (const path of entriesOf(`/proc/${pid}/${holder}`)) {
        signal.throwIfAborted();
        const found = await stat(path).catch(() => undefined);
        // The count of names decides, because a guest chooses the name itself.
        if (!found?.isFile() || found.nlink > 0) continue;
        const file = `${found.dev} ${found.ino}`;
        if (counted.has(file)) continue;
        counted.add(file);
        bytes.set(found.dev, (bytes.get(found.dev) ?? 0) + found.blocks * 512);
      }
    }
  }
  return bytes;
}

/** Nothing of a directory that has gone with its process, or that this process may not read. */
async function* entriesOf(directory: string): AsyncIterable<string> {
  try {
    for await (const { name } of await opendir(directory, { bufferSize: READ_AT_ONCE })) {
      yield join(directory, name);
    }
  } catch {
    // The entries that came before it count.
  }
}
