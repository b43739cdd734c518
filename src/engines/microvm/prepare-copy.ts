import { link, mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { StartRefusedError, type Run } from '../../engine/runtime.js';
import { writeFileAtomically } from '../../lib/atomic-file.js';
import { createDiskAbove } from './disks/create-disk.js';
import { linkLayers } from './disks/layers.js';
import { hasRun, type HeldSandbox } from './holdings.js';
import { readText, type Identity } from './identity.js';
import { BASE_FILE } from './images/build-base.js';
import type { MicrovmParts } from './parts.js';
import { placesOf } from './places.js';
import type { StoredSnapshot } from './snapshots/snapshot-store.js';

/**
 * Makes the directory of a sandbox with a disk above the layers of a snapshot. Until a run of it has begun, each start
 * makes it anew: a start that failed may have applied a part of the patches. Throws StartRefusedError.
 */
export async function prepareCopy(
  { directory, snapshots }: Pick<MicrovmParts, 'directory' | 'snapshots'>,
  { orgId, sandboxId, runId, spec }: Run,
  held: HeldSandbox | undefined,
  snapshotId: string,
): Promise<{ identity: Identity; isCopy: boolean }> {
  const places = placesOf(directory, sandboxId);
  if (held && (await isBegun(held))) return { identity: held.identity, isCopy: false };
  const snapshot = await snapshots.find(snapshotId);
  if (snapshot?.orgId !== orgId) {
    throw new StartRefusedError(
      `the engine has no disk of the snapshot ${snapshotId} any more: create the sandbox from another one`,
    );
  }
  checkSize(snapshot, spec.diskMib);
  const { imageDigest, diskMib, image, layers } = snapshot;
  const identity = { orgId, sandboxId, firstRunId: runId, imageDigest, diskMib, layers, image };
  await rm(places.directory, { recursive: true, force: true });
  await mkdir(places.directory, { recursive: true, mode: 0o700 });
  // A directory without it belongs to nobody.
  await writeFileAtomically(places.identity, JSON.stringify(identity), { replace: true });
  await link(join(snapshot.directory, BASE_FILE), places.base);
  await linkLayers(snapshot.directory, places.directory, layers);
  await createDiskAbove(places.disk, diskMib);
  return { identity, isCopy: true };
}

/** The next run removes the record of the latest one, so this says that its disk has files of its own. */
export async function noteBegun(held: HeldSandbox): Promise<void> {
  if (hasRun(held) && !(await isBegun(held)))
    await writeFileAtomically(held.places.begun, '', { replace: true });
}

async function isBegun({ places }: HeldSandbox): Promise<boolean> {
  return (await readText(places.begun)) !== undefined;
}

/** The file systems of disks have no room to grow: see create-disk.ts. */
function checkSize({ diskMib }: StoredSnapshot, wanted: number | null | undefined): void {
  if (wanted == null || wanted === diskMib) return;
  throw new StartRefusedError(
    `resources.disk_size_mib: the disk of the snapshot has ${diskMib} MiB, and cannot be resized: leave the field out, or ask for ${diskMib}`,
  );
}
