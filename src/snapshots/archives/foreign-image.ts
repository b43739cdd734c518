import type { FileHandle } from 'node:fs/promises';
import type { ForeignImage } from '../../engine/snapshot-archives.js';
import { readArchivedImage } from '../../registry/archived-image.js';
import { readTarArchive } from '../../registry/image-archive.js';
import { readImageConfig } from '../../registry/image-config.js';
import { verified } from '../../registry/layer-check.js';
import { PullError } from '../../registry/pull-error.js';
import type { Step } from '../../registry/step.js';

/** Reads the documents of an archive. Its layers are read, and proven, when they are opened. Throws PullError. */
export async function readForeignImage(
  handle: FileHandle,
  { architecture, created, step }: { architecture: string; created: string; step: Step },
): Promise<ForeignImage> {
  const archive = await readTarArchive('the body', handle, step);
  const { config, digest, layers } = await readArchivedImage(archive, architecture);
  if (layers.length === 0) throw new PullError('unsupported', 'the image has no layers');
  return {
    platform: { os: 'linux', architecture },
    created,
    config: readImageConfig(config),
    digest,
    layers: await Promise.all(
      layers.map(async ({ file, diffId, blob }) => {
        const { size } = await archive.stream(file);
        if (blob && blob.size !== size)
          throw new PullError('mismatch', `the file ${file} has ${size} bytes instead of ${blob.size}`);
        return {
          digest: blob?.digest ?? file,
          diffId,
          size,
          async open() {
            const { content } = await archive.stream(file);
            return blob ? verified(content, blob, step) : content;
          },
        };
      }),
    ),
  };
}
