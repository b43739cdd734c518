import type Docker from 'dockerode';
import type { HeldImage } from '../../../engine/images/held-images.js';
import type { Captured } from '../../../engine/runtime.js';
import { IMAGE_LABEL, INSTANCE_LABEL, ORG_LABEL } from '../container.js';
import { CONFLICT, ignoreStatus, NOT_FOUND, statusOf } from '../errors.js';
import {
  engineImageOf,
  inspectNamed,
  isPulled,
  namesOf,
  SNAPSHOT_IMAGES,
  type EngineImage,
} from '../images/engine-image.js';
import { loadConfiguration } from '../images/load-image.js';

const SNAPSHOT_LABEL = 'dev.sandkeep.snapshot';
/** The bytes of the image below all snapshots. */
const BASE_BYTES_LABEL = 'dev.sandkeep.base.bytes';
/** The id of that image, if it was pulled: its organization holds it. */
const BASE_ID_LABEL = 'dev.sandkeep.base.id';

/** The digest of an archive without entries. The engine makes no layer of a disk without changes. */
const EMPTY_LAYER = 'sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef';

export type InspectedImage = Docker.ImageInspectInfo;

export interface SnapshotIds {
  instanceId: string;
  orgId: string;
  snapshotId: string;
}

export function snapshotName(snapshotId: string): string {
  return `${SNAPSHOT_IMAGES}:${snapshotId}`;
}

/** Undefined: the engine has no such snapshot of the organization. */
export async function inspectSnapshot(
  docker: Docker,
  { orgId, snapshotId }: Pick<SnapshotIds, 'orgId' | 'snapshotId'>,
): Promise<InspectedImage | undefined> {
  const found = await inspectNamed(docker, snapshotName(snapshotId));
  return labelsOf(found)[ORG_LABEL] === orgId ? found : undefined;
}

/** The snapshot as the image of a sandbox. Its digest is that of the image below it. */
export async function findSnapshotImage(
  docker: Docker,
  ids: Pick<SnapshotIds, 'orgId' | 'snapshotId'>,
): Promise<EngineImage | undefined> {
  const found = await inspectSnapshot(docker, ids);
  return found && { ...engineImageOf(found), digest: labelsOf(found)[IMAGE_LABEL] ?? found.Id };
}

/** The bytes of the image below all snapshots of which `image` may be the last. */
export function baseBytesOf(image: InspectedImage, instanceId: string): number {
  const text = snapshotLabelsOf(image, instanceId)?.[BASE_BYTES_LABEL];
  return Math.min(parseBytes(text) ?? image.Size, image.Size);
}

/** The id of the pulled image below all snapshots of which `image` may be the last. Undefined: it is the operator's. */
function pulledBaseOf(image: InspectedImage, instanceId: string): string | undefined {
  const labels = snapshotLabelsOf(image, instanceId);
  if (labels) return labels[BASE_ID_LABEL];
  return isPulled(image) ? image.Id : undefined;
}

/** Undefined: it is no snapshot of this installation. Other images may have any label, and none gets this name. */
function snapshotLabelsOf(image: InspectedImage, instanceId: string): Record<string, string> | undefined {
  const labels = labelsOf(image);
  const isSnapshot = image.RepoTags?.includes(snapshotName(labels[SNAPSHOT_LABEL] ?? '')) ?? false;
  return isSnapshot && labels[INSTANCE_LABEL] === instanceId ? labels : undefined;
}

function parseBytes(text: string | undefined): number | undefined {
  return text !== undefined && /^\d{1,15}$/.test(text) ? Number(text) : undefined;
}

/** The pulled images below the snapshots of an organization. */
export async function listBases(docker: Docker, orgId: string): Promise<HeldImage[]> {
  const filters = { reference: [SNAPSHOT_IMAGES], label: [`${ORG_LABEL}=${orgId}`] };
  const bases = new Map<string, number>();
  for (const { Labels } of await docker.listImages({ filters })) {
    const { [BASE_ID_LABEL]: id, [BASE_BYTES_LABEL]: bytes } = Labels;
    if (id !== undefined) bases.set(id, parseBytes(bytes) ?? 0);
  }
  return Array.from(bases, ([id, bytes]) => ({ id, bytes }));
}

export function capturedOf(
  image: InspectedImage,
  below: InspectedImage | undefined,
  instanceId: string,
): Captured {
  const layers = image.RootFS.Layers ?? [];
  const isUnchanged = below !== undefined && layers.length === (below.RootFS.Layers ?? []).length;
  return {
    bytes: image.Size - baseBytesOf(image, instanceId),
    contentDigest: isUnchanged ? EMPTY_LAYER : layers.at(-1)!,
  };
}

/**
 * Gives the layers of a committed image the configuration of the image that the sandbox began with. The committed one
 * has the variables, the command and the labels of the container, with the values of secret variables.
 */
export async function makeSnapshotImage(
  docker: Docker,
  { instanceId, orgId, snapshotId }: SnapshotIds,
  { committed, below, digest }: { committed: InspectedImage; below: InspectedImage; digest: string },
): Promise<InspectedImage> {
  const { OnBuild: _, Healthcheck: __, ...config } = below.Config as Record<string, unknown>;
  const layers = committed.RootFS.Layers ?? [];
  const baseId = pulledBaseOf(below, instanceId);
  const configuration = {
    architecture: below.Architecture,
    ...(below.Variant ? { variant: below.Variant } : {}),
    os: below.Os,
    created: committed.Created,
    config: {
      ...config,
      Image: '',
      Labels: labelsFor(
        { instanceId, orgId, snapshotId },
        { digest, baseBytes: baseBytesOf(below, instanceId), baseId },
      ),
    },
    rootfs: { type: 'layers', diff_ids: layers },
  };
  const name = snapshotName(snapshotId);
  const failure = await loadConfiguration(docker, {
    name,
    config: Buffer.from(JSON.stringify(configuration)),
    layers: layers.length,
  });
  if (failure !== undefined) throw new Error(`the engine cannot name a snapshot: ${failure}`);
  const made = await inspectSnapshot(docker, { orgId, snapshotId });
  if (made === undefined || JSON.stringify(made.RootFS.Layers ?? []) !== JSON.stringify(layers)) {
    throw new Error(`the engine has no image ${name} with the layers of the capture`);
  }
  return made;
}

/** `digest`, `baseBytes`: of the image below the snapshot. `baseId`: its id, if it was pulled. */
export function labelsFor(
  { instanceId, orgId, snapshotId }: SnapshotIds,
  { digest, baseBytes, baseId }: { digest: string; baseBytes: number; baseId?: string | undefined },
): Record<string, string> {
  return {
    [INSTANCE_LABEL]: instanceId,
    [ORG_LABEL]: orgId,
    [SNAPSHOT_LABEL]: snapshotId,
    [IMAGE_LABEL]: digest,
    [BASE_BYTES_LABEL]: String(baseBytes),
    ...(baseId === undefined ? {} : { [BASE_ID_LABEL]: baseId }),
  };
}

export async function listSnapshots(
  docker: Docker,
  instanceId: string,
): Promise<{ orgId: string; snapshotId: string; imageId: string; names: string[] }[]> {
  const images = await docker.listImages({
    filters: { reference: [SNAPSHOT_IMAGES], label: [`${INSTANCE_LABEL}=${instanceId}`] },
  });
  return images.map(({ Id, Labels, RepoTags }) => ({
    orgId: Labels[ORG_LABEL] ?? '',
    snapshotId: Labels[SNAPSHOT_LABEL] ?? '',
    imageId: Id,
    // An operator may have given it another one.
    names: namesOf(RepoTags).filter((name) => name.startsWith(`${SNAPSHOT_IMAGES}:`)),
  }));
}

/** False: a container has it. Its layers stay as long as another image has them. */
export async function removeSnapshotImage(docker: Docker, snapshotId: string): Promise<boolean> {
  const name = snapshotName(snapshotId);
  const found = await inspectNamed(docker, name);
  if (found === undefined) return true;
  const users = await docker.listContainers({ all: true, filters: { ancestor: [found.Id] } });
  if (users.some(({ ImageID }) => ImageID === found.Id)) return false;
  try {
    await docker.getImage(name).remove().catch(ignoreStatus(NOT_FOUND));
    return true;
  } catch (error) {
    // A container was made of it meanwhile.
    if (statusOf(error) === CONFLICT) return false;
    throw error;
  }
}

function labelsOf(image: InspectedImage | undefined): Record<string, string> {
  return image?.Config.Labels ?? {};
}
