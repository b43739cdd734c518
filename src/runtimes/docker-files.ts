import type Docker from 'dockerode';
import { putEntries } from './docker-archive.js';
import { applyPatches } from './docker-patches.js';
import { scriptEntries } from './docker-scripts.js';
import type { RunSpec } from './runtime.js';

/** Does a new container get files of its own before it starts? */
export function needsFiles({ patches, scripts }: RunSpec): boolean {
  return patches.length > 0 || Object.keys(scripts).length > 0;
}

/** Applies patches and places scripts in a container that was just made. Throws StartRefusedError. */
export async function placeFiles(container: Docker.Container, spec: RunSpec): Promise<void> {
  await applyPatches(container, spec);
  const entries = scriptEntries(spec);
  if (entries.length > 0) await putEntries(container, entries);
}
