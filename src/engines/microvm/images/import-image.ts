import { ExplainedError } from '../../../lib/explained-error.js';
import { readArchivedImage } from '../../../registry/archived-image.js';
import { openArchive } from '../../../registry/image-archive.js';
import { readImageConfig } from '../../../registry/image-config.js';
import { ImageBudget, type SizeLimit } from '../../../registry/layer-check.js';
import { PullError } from '../../../registry/pull-error.js';
import {
  formatImageReference,
  parseImageReference,
  type ImageReference,
} from '../../../spec/image-reference.js';
import { buildBase } from './build-base.js';
import { ImageNames } from './image-names.js';
import type { ImageStore, StoredImage } from './image-store.js';

export interface Import {
  file: string;
  /** Default: the name in the archive. */
  name: string | undefined;
  architecture: string;
  limit: SizeLimit;
  signal: AbortSignal;
}

/** Adds the image of an archive under a name. Throws ExplainedError. */
export async function importImage(
  store: ImageStore,
  { file, name, architecture, limit, signal }: Import,
): Promise<{ reference: string; image: StoredImage }> {
  const archive = await openArchive(file);
  try {
    const { digest, config, layers, names } = await readArchivedImage(archive, architecture);
    const reference = referenceOf(name ?? names[0]);
    const image =
      (await store.find(digest)) ??
      (await store.add(digest, readImageConfig(config), async (directory) =>
        buildBase(
          layers.map(({ diffId, file }) => ({
            diffId,
            open: async () => (await archive.stream(file)).content,
          })),
          {
            directory,
            budget: new ImageBudget(limit, () => undefined),
            step: async (work) => Promise.resolve(work()),
            signal,
          },
        ),
      ));
    await new ImageNames(store.root).set(reference, digest);
    return { reference: formatImageReference(reference), image };
  } catch (error) {
    if (error instanceof ExplainedError) throw new ExplainedError(`cannot import ${file}: ${error.message}`);
    if (!(error instanceof PullError)) throw error;
    throw new ExplainedError(`cannot import ${file}: ${reasonOf(error)}`, { cause: error });
  } finally {
    await archive.close();
  }
}

function referenceOf(name: string | undefined): ImageReference {
  if (name === undefined)
    throw new ExplainedError('its archive names no image: give it a name with --name, such as team/app:1');
  const reference = parseImageReference(name);
  if (!reference || 'digest' in reference.version)
    throw new ExplainedError(`"${name}" is no name of an image: use one such as team/app:1`);
  return reference;
}

/** Some words are about registries. */
function reasonOf({ failure, words, message }: PullError): string {
  return failure === 'broken' || failure === 'unsupported' ? message : `${words} (${message})`;
}
