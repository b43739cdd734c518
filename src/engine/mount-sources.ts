import type { Stats } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import type { VolumeMount } from '../spec/run-spec.js';
import { VolumeDiskError } from '../volumes/storage/disks/errors.js';
import { O_PATH, VolumePathError } from '../volumes/storage/guest-path.js';
import type { VolumeStore } from '../volumes/storage/store.js';
import { StartRefusedError, type Run } from './runtime.js';

/** A mount of a volume shows this open file. No path leads to it. The caller closes the handle. */
export interface MountSource {
  handle: FileHandle;
  isDirectory: boolean;
}

/** Before the start takes a place of the engine: the first disk of a volume takes as long as a copy of its files. */
export async function holdMountsToCaps(
  volumes: VolumeStore,
  { orgId, spec, capsGib }: Run,
  signal: AbortSignal,
): Promise<void> {
  for (const [index, mount] of spec.mounts.entries()) {
    if (mount.type !== 'named') continue;
    const field = `mounts[${index}]`;
    const capGib = capsGib?.get(mount.volumeId);
    // It was created by a process on a machine that can.
    if (capGib !== undefined && !volumes.makesDisks)
      throw new StartRefusedError(
        `${field}: this machine cannot hold sandboxes to the cap of a volume; "sandkeep doctor" shows the operator the reason`,
      );
    try {
      await volumes.holdToCap(orgId, mount.volumeId, capGib, { isStart: true, signal });
    } catch (error) {
      throw explainDisk(error, field);
    }
  }
}

/** `field`: the mount in the request. Throws StartRefusedError. */
export async function openMountSource(
  volumes: Pick<VolumeStore, 'openBeneath'>,
  orgId: string,
  mount: VolumeMount,
  field: string,
): Promise<MountSource> {
  const [path, fieldPath] = mount.type === 'bind' ? [mount.host, `${field}.host`] : ['/', `${field}.name`];
  let handle: FileHandle;
  try {
    handle = await volumes.openBeneath(orgId, mount.volumeId, path, O_PATH);
  } catch (error) {
    if (!(error instanceof VolumePathError)) throw explainDisk(error, field);
    const help = error.kind === 'not_found' ? ': put it into the host volume first, then start again' : '';
    throw new StartRefusedError(`${fieldPath} cannot be mounted: ${error.message}${help}`, {
      cause: error,
    });
  }
  const found = await handle.stat();
  if (found.isDirectory() || found.isFile()) return { handle, isDirectory: found.isDirectory() };
  await handle.close();
  throw new StartRefusedError(`${fieldPath} cannot be mounted: ${describeKind(found)}`);
}

/** Without room a later start may find some, so that error stays. */
function explainDisk(error: unknown, field: string): unknown {
  if (!(error instanceof VolumeDiskError) || error.kind === 'no_room') return error;
  return new StartRefusedError(`${field} cannot be mounted: ${error.message}`, { cause: error });
}

function describeKind(found: Stats): string {
  return found.isSymbolicLink()
    ? 'it is a symbolic link, which is not followed'
    : 'it is neither a directory nor a file';
}
