import { mkdir, rename, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { syncDirectory } from '../../lib/directories.js';
import { readRunFile, type RunFile } from './identity.js';
import type { SandboxPlaces } from './places.js';
import { readRecord } from './read-record.js';

/** The memory of a run that a pause has ended. Its supervisor has written it, and keeps `saved` in the record. */
export interface SavedMemory {
  /** That of the run. */
  directory: string;
  run: RunFile;
  bytes: number;
}

const MEMORY = 'memory';
/** The state of its devices, beside the memory. It takes less than one. */
const DEVICES_MIB = 64;

/** The most that the file of a memory may have. */
export function mostSavedMib(memoryMib: number): number {
  return memoryMib + DEVICES_MIB;
}

export function memoryFile(directory: string): string {
  return join(directory, MEMORY);
}

/** Undefined: there is none, or only a part. */
export async function readSaved({ run, paused }: SandboxPlaces): Promise<SavedMemory | undefined> {
  for (const directory of [run, paused]) {
    const record = await readRecord({ record: join(directory, 'record') });
    const { savedBytes: bytes } = record ?? {};
    if (record?.end === undefined || bytes === undefined) continue;
    const file = await readRunFile(join(directory, 'run.json'));
    const found = await stat(memoryFile(directory)).catch(() => undefined);
    if (file && found?.size === bytes) return { directory, run: file, bytes };
  }
  return undefined;
}

/**
 * Moves the saved memory out of the directory that the next run gets. A crash afterwards leaves it there, and the next
 * start finds it.
 */
export async function beginRestore(places: SandboxPlaces, saved: SavedMemory): Promise<void> {
  if (saved.directory === places.run) {
    await rm(places.paused, { recursive: true, force: true });
    await rename(places.run, places.paused);
  }
  await rm(places.run, { recursive: true, force: true });
  await mkdir(places.run, { mode: 0o700 });
  await syncDirectory(places.directory);
}

/** Removes the saved memory: no run continues it. */
export async function discardSaved({ run, paused }: SandboxPlaces): Promise<void> {
  await rm(memoryFile(run), { force: true });
  await rm(paused, { recursive: true, force: true });
}
