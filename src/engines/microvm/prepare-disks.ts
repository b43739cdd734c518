import { link, mkdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { StartRefusedError, type Run } from '../../engine/runtime.js';
import { writeFileAtomically } from '../../lib/atomic-file.js';
import { createDisk } from './disks/create-disk.js';
import type { HeldSandbox } from './holdings.js';
import type { Identity } from './identity.js';
import { BASE_FILE } from './images/build-base.js';
import type { VmImage } from './images/vm-images.js';
import type { MicrovmParts } from './parts.js';
import { placesOf } from './places.js';
import { prepareCopy } from './prepare-copy.js';

/**
 * Makes the directory of a sandbox with its base and its disk, so far as an earlier start has not. A crash leaves
 * parts, which the next start completes. `isCopy`: the disk has the files of another sandbox, and was made now. Throws
 * StartRefusedError.
 */
export async function prepareDisks(
  parts: MicrovmParts,
  run: Run,
  held: HeldSandbox | undefined,
  signal: AbortSignal,
): Promise<{ identity: Identity; isCopy: boolean } | undefined> {
  const { snapshotId } = run.spec;
  if (snapshotId !== undefined) return prepareCopy(parts, run, held, snapshotId);
  const places = placesOf(parts.directory, run.sandboxId);
  const isWhole = held !== undefined && (await exists(places.base)) && (await exists(places.disk));
  try {
    const image = isWhole
      ? await newerImage(parts, run, held.identity, signal)
      : await parts.images.ensure(run, signal);
    if (signal.aborted) return undefined;
    const identity = image ? await makeDisks(parts, run, image) : held?.identity;
    return identity && { identity, isCopy: false };
  } finally {
    parts.images.release(run);
  }
}

/** With `always`, a tag that has moved gives the sandbox a new disk. Without an answer of the registry a disk stays. */
async function newerImage(
  { images }: MicrovmParts,
  run: Run,
  { imageDigest }: Identity,
  signal: AbortSignal,
): Promise<VmImage | undefined> {
  if (run.spec.pullPolicy !== 'always') return undefined;
  const latest = await images.latestDigest(run, signal);
  if (latest === undefined || latest === imageDigest) return undefined;
  return images.ensure(run, signal).catch((error: unknown) => {
    if (!(error instanceof StartRefusedError)) throw error;
    return undefined;
  });
}

async function makeDisks(parts: MicrovmParts, run: Run, image: VmImage): Promise<Identity> {
  const { orgId, sandboxId, runId } = run;
  const places = placesOf(parts.directory, sandboxId);
  const { config, directory } = image.stored;
  const diskMib = run.spec.diskMib ?? parts.defaultDiskMib;
  const identity = {
    orgId,
    sandboxId,
    firstRunId: runId,
    imageDigest: image.digest,
    diskMib,
    image: config,
  };
  await mkdir(places.directory, { recursive: true, mode: 0o700 });
  // First, so that a crash leaves no disk of one image beside the base of another.
  await rm(places.disk, { force: true });
  await rm(places.base, { force: true });
  // A directory without it belongs to nobody.
  await writeFileAtomically(places.identity, JSON.stringify(identity), { replace: true });
  // A link keeps the base, also when the image is removed.
  await link(join(directory, BASE_FILE), places.base);
  await createDisk(places.disk, diskMib);
  return identity;
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
