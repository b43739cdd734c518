import { link, mkdir, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { StartRefusedError, type Run } from '../../engine/runtime.js';
import { writeFileAtomically } from '../../lib/atomic-file.js';
import { parseImageReference } from '../../spec/image-reference.js';
import { createDisk } from './disks/create-disk.js';
import type { HeldSandbox } from './holdings.js';
import type { Identity } from './identity.js';
import { BASE_FILE } from './images/build-base.js';
import type { StoredImage } from './images/image-store.js';
import type { MicrovmParts } from './parts.js';
import { placesOf } from './places.js';

/**
 * Makes the directory of a sandbox with its base and its disk, so far as an earlier start has not. A crash leaves
 * parts, which the next start completes. Throws StartRefusedError.
 */
export async function prepareDisks(
  parts: MicrovmParts,
  run: Run,
  held: HeldSandbox | undefined,
  signal: AbortSignal,
): Promise<Identity | undefined> {
  const places = placesOf(parts.directory, run.sandboxId);
  const isWhole = held !== undefined && (await exists(places.base)) && (await exists(places.disk));
  if (isWhole) return held.identity;
  const image = await findImage(parts, run);
  if (signal.aborted) return undefined;
  const { orgId, sandboxId, runId } = run;
  const identity = { orgId, sandboxId, firstRunId: runId, imageDigest: image.digest, image: image.config };
  await mkdir(places.directory, { recursive: true, mode: 0o700 });
  // First: a directory without it belongs to nobody.
  await writeFileAtomically(places.identity, JSON.stringify(identity), { replace: true });
  await rm(places.base, { force: true });
  // A link keeps the base, also when the image is removed.
  await link(join(image.directory, BASE_FILE), places.base);
  await rm(places.disk, { force: true });
  await createDisk(places.disk, run.spec.diskMib ?? parts.defaultDiskMib);
  return identity;
}

async function findImage({ names, images }: MicrovmParts, { spec }: Run): Promise<StoredImage> {
  const reference = parseImageReference(spec.image);
  if (!reference) throw new StartRefusedError(`${spec.image} is not an OCI image reference`);
  const named = await names.find(reference);
  const found = named && (await images.find(named.digest));
  if (found) return found;
  throw new StartRefusedError(
    `the image ${spec.image} is not on this machine: its operator adds it with "sandkeep images import"`,
  );
}

async function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    () => false,
  );
}
