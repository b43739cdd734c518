import { link, stat } from 'node:fs/promises';
import { join } from 'node:path';

/**
 * The layers of a disk: the read-only files of snapshots below it, from the lowest one. Each sandbox and each snapshot
 * has hard links to them, so a layer stays as long as anything needs it.
 */
export function layerFile(directory: string, index: number): string {
  return join(directory, `layer-${index}.qcow2`);
}

export function layerFiles(directory: string, count: number): string[] {
  return Array.from({ length: count }, (_, index) => layerFile(directory, index));
}

export async function linkLayers(from: string, to: string, count: number): Promise<void> {
  for (const [index, file] of layerFiles(from, count).entries()) await link(file, layerFile(to, index));
}

/** The bytes of the disk of the machine that the files take. */
export async function allocatedBytes(files: readonly string[]): Promise<number> {
  const found = await Promise.all(files.map(async (file) => stat(file)));
  return found.reduce((sum, { blocks }) => sum + blocks * 512, 0);
}
