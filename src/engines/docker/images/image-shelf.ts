import type Docker from 'dockerode';
import type { ImageShelf } from '../../../engine/images/unused-images.js';
import { ALREADY_REMOVED, ignoreStatus } from '../errors.js';
import { listPulled } from './engine-image.js';

const REMOVAL_MS = 60_000;

/** The pulled images of an engine of containers. */
export function imageShelf(docker: Docker): ImageShelf {
  return {
    async list() {
      const images = await listPulled(docker);
      const containers = await docker.listContainers({ all: true });
      const inUse = new Set(containers.map(({ ImageID }) => ImageID));
      return images.map(({ id, names, bytes }) => ({ names, bytes, isInUse: inUse.has(id) }));
    },
    async remove(name) {
      // The engine asks every container whether it runs with the image, and waits for one that hangs.
      await docker
        .getImage(name)
        .remove({ abortSignal: AbortSignal.timeout(REMOVAL_MS) })
        .catch(ignoreStatus(...ALREADY_REMOVED));
    },
  };
}
