import { opendir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';

const READ_AT_ONCE = 256;
/** In each round the threads that have begun since the last one are looked at. */
const MOST_ROUNDS = 10;

/** The bytes of files that a sandbox has removed, and holds open. */
export interface RemovedBytes {
  /** On its own disk. */
  own: number;
  /** By the number of the disk, as `stat` has it. */
  onDisks: ReadonlyMap<number, number>;
}

/**
 * The bytes of files without a name that threads hold, by the number of the disk. Such a file takes room until the last
 * thread closes it, and no walk through directories finds it. Files of threads that this process may not look into are
 * missing. `threads`: the numbers at present. A thread may have files that its process lacks.
 *
 * Throws when the signal aborts, because a thread may hold a million files. Throws when threads begin faster than they
 * can be looked at, because each may pass a file on to the next.
 */
export async function removedBytes(
  threads: () => Promise<readonly number[]>,
  signal: AbortSignal,
): Promise<Map<number, number>> {
  const found = new RemovedFiles();
  const seen = new Set<number>();
  /** Threads of a process share its memory, so it is looked at once. */
  const mapped = new Set<string>();
  for (let round = 0; round < MOST_ROUNDS; round += 1) {
    const begun = (await threads()).filter((thread) => !seen.has(thread));
    if (begun.length === 0) return found.bytes;
    for (const thread of begun) {
      seen.add(thread);
      for await (const path of entriesOf(`/proc/${thread}/fd`)) {
        signal.throwIfAborted();
        await found.count(path);
      }
      const process = await processOf(thread);
      if (process === undefined || mapped.has(process)) continue;
      for await (const path of mapsOf(thread)) {
        signal.throwIfAborted();
        await found.count(path);
        // The first thread of a process may have ended, and shows none.
        mapped.add(process);
      }
    }
  }
  throw new Error('threads begin faster than they can be looked at');
}

class RemovedFiles {
  readonly bytes = new Map<number, number>();
  private readonly counted = new Set<string>();

  async count(path: string): Promise<void> {
    const found = await stat(path).catch(() => undefined);
    // The count of names decides, because a guest chooses the name itself.
    if (!found?.isFile() || found.nlink > 0) return;
    const file = `${found.dev} ${found.ino}`;
    if (this.counted.has(file)) return;
    this.counted.add(file);
    this.bytes.set(found.dev, (this.bytes.get(found.dev) ?? 0) + found.blocks * 512);
  }
}

/** Files that are mapped into memory without being open, and the program. Only root may see the first. */
async function* mapsOf(thread: number): AsyncIterable<string> {
  yield* entriesOf(`/proc/${thread}/map_files`);
  const program = `/proc/${thread}/exe`;
  if (await stat(program).catch(() => undefined)) yield program;
}

async function processOf(thread: number): Promise<string | undefined> {
  const text = await readFile(`/proc/${thread}/status`, 'utf8').catch(() => '');
  return /^Tgid:\t(\d+)$/m.exec(text)?.[1];
}

/** Nothing of a directory that has gone with its thread, or that this process may not read. */
async function* entriesOf(directory: string): AsyncIterable<string> {
  try {
    for await (const { name } of await opendir(directory, { bufferSize: READ_AT_ONCE })) {
      yield join(directory, name);
    }
  } catch {
    // The entries that came before it count.
  }
}
