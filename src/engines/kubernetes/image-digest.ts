import type { V1Pod } from '@kubernetes/client-node';
import { parseImageReference } from '../../spec/image-reference.js';
import { CONTAINER } from './names.js';

/** `docker-pullable://team/app@sha256:…`, `docker.io/team/app@sha256:…`, or an id alone for an image of no registry. */
const IMAGE_ID = /^(?:[a-z-]+:\/\/)?(?:([^@]+)@)?(sha256:[0-9a-f]{64})$/;

/**
 * The digest of the image of a run, as its registry names it. A node that has an image from several repositories names
 * any of them, and the digests of others may differ: those are undefined.
 */
export function imageDigestOf({ spec, status }: V1Pod): string | undefined {
  const image = parseImageReference(spec?.containers?.find(({ name }) => name === CONTAINER)?.image ?? '');
  if (image && 'digest' in image.version) return image.version.digest;
  const container = status?.containerStatuses?.find(({ name }) => name === CONTAINER);
  const [, repository, digest] = IMAGE_ID.exec(container?.imageID ?? '') ?? [];
  if (repository === undefined || digest === undefined) return digest;
  const named = parseImageReference(`${repository}@${digest}`);
  return named?.registry === image?.registry && named?.repository === image?.repository ? digest : undefined;
}
