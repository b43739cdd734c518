import { join } from 'node:path';
import type {
  EngineArchives,
  ForeignImage,
  LoadedSnapshot,
  SnapshotIds,
} from '../../../engine/snapshot-archives.js';
import { createDisk } from '../disks/create-disk.js';
import { sealLayer } from '../disks/copy-disk.js';
import { allocatedBytes, layerFile } from '../disks/layers.js';
import { BASE_FILE, buildBase } from '../images/build-base.js';
import { ownArchitecture } from '../images/own-architecture.js';
import type { MicrovmParts } from '../parts.js';

/**
 * Makes snapshots of images in archives: the base of the image, with an empty disk above it. There are no exports: a
 * layer of a disk is a file system that a sandbox wrote, and the machine does not read such file systems.
 */
export class ImageImports implements EngineArchives {
  readonly architecture = ownArchitecture();

  constructor(private readonly parts: Pick<MicrovmParts, 'snapshots' | 'defaultDiskMib'>) {}

  async load(
    { orgId, snapshotId }: SnapshotIds,
    { config, digest, layers }: ForeignImage,
    { step, signal, budget }: Parameters<EngineArchives['load']>[2],
  ): Promise<LoadedSnapshot> {
    const { snapshots, defaultDiskMib: diskMib } = this.parts;
    const { bytes, contentDigest } = await snapshots.add(async (draft) => {
      const base = await buildBase(layers, { directory: draft, budget, step, signal });
      const disk = layerFile(draft, 0);
      await createDisk(disk, diskMib);
      const sealed = await sealLayer(disk, diskMib);
      if (typeof sealed === 'string') throw new Error(`the disk of the import is not valid: ${sealed}`);
      const { env, entrypoint, user, workdir, stopSignal, cmd, exposedPorts, volumes } = config;
      return {
        orgId,
        snapshotId,
        diskMib,
        imageDigest: digest,
        image: { env, entrypoint, user, workdir, stopSignal, cmd, exposedPorts, volumes },
        layers: 1,
        bytes: await allocatedBytes([join(draft, BASE_FILE), disk]),
        contentDigest: `sha256:${base.sha256}`,
      };
    });
    return { bytes, contentDigest, diskMib };
  }
}
