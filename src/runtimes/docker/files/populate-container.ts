import type Docker from 'dockerode';
import type { RunSpec } from '../../runtime.js';
import { writeEntries } from '../archive.js';
import { applyPatches } from './patches.js';
import { scriptEntries } from './scripts.js';

export function hasFiles({ patches, scripts }: RunSpec): boolean {
  return patches.length > 0 || Object.keys(scripts).length > 0;
}

export async function populateContainer(container: Docker.Container, spec: RunSpec): Promise<void> {
  await applyPatches(container, spec);
  const entries = scriptEntries(spec);
  if (entries.length > 0) await writeEntries(container, entries);
}
