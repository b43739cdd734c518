import { Type } from 'typebox';
import { validatorOf } from '../http/validation.js';
import { ExplainedError } from '../lib/explained-error.js';
import { parseJson } from '../lib/json.js';
import { MAX_DOCUMENT_BYTES, MAX_LAYERS } from './limits.js';
import { readConfig, readManifest, type Descriptor, type Manifest } from './manifest.js';
import { PullError } from './pull-error.js';
import { sha256Digest } from './sha256-digest.js';
import type { ImageArchive } from './image-archive.js';

interface ArchivedLayer {
  diffId: string;
  file: string;
  /** The digest and the size that a manifest names. Undefined: there is no manifest. */
  blob: Pick<Descriptor, 'digest' | 'size'> | undefined;
}

export interface ArchivedImage {
  config: Buffer;
  /** The digest of the configuration. */
  digest: string;
  layers: ArchivedLayer[];
  /** The names in an archive of `docker save`. */
  names: string[];
}

const isSaved = validatorOf(
  Type.Array(
    Type.Object({
      Config: Type.String(),
      RepoTags: Type.Optional(Type.Union([Type.Null(), Type.Array(Type.String())])),
      Layers: Type.Array(Type.String()),
    }),
  ),
);
const isIndex = validatorOf(
  Type.Object({ manifests: Type.Array(Type.Object({ digest: Type.String() }), { minItems: 1 }) }),
);

/** Throws ExplainedError or PullError. */
export async function readArchivedImage(archive: ImageArchive, architecture: string): Promise<ArchivedImage> {
  const saved = parseFile(await archive.read('manifest.json', MAX_DOCUMENT_BYTES));
  if (isSaved(saved)) return readSaved(archive, saved, architecture);
  const index = await archive.read('index.json', MAX_DOCUMENT_BYTES);
  if (index) return readLayout(archive, index, architecture);
  throw new ExplainedError(
    'it has neither manifest.json nor index.json: it must be an archive of "docker save" or in the OCI image layout',
  );
}

async function readSaved(
  archive: ImageArchive,
  saved: { Config: string; RepoTags?: string[] | null; Layers: string[] }[],
  architecture: string,
): Promise<ArchivedImage> {
  const [image, ...others] = saved;
  if (!image || others.length > 0)
    throw new ExplainedError(`it has ${saved.length} images: save one image in an archive`);
  const config = await archive.read(image.Config, MAX_DOCUMENT_BYTES);
  if (!config) throw new ExplainedError(`it is not complete: it has no file ${image.Config}`);
  const digest = sha256Digest(config);
  const layers = image.Layers.map((file) => ({ digest, size: 0, file, blob: undefined }));
  const manifest = { schemaVersion: 2 as const, config: { digest, size: config.length }, layers };
  return { digest, config, names: image.RepoTags ?? [], layers: layersOf(config, manifest, architecture) };
}

async function readLayout(
  archive: ImageArchive,
  index: Buffer,
  architecture: string,
): Promise<ArchivedImage> {
  let manifest: Manifest | { digest: string } = firstOf(index, architecture);
  // An index of an index is the most that tools write.
  for (let depth = 0; 'digest' in manifest && depth < 2; depth += 1) {
    manifest = readManifest(await readBlob(archive, manifest.digest), architecture);
  }
  if ('digest' in manifest) throw new PullError('unsupported', 'an index leads to another index');
  const { digest } = manifest.config;
  const config = await readBlob(archive, digest);
  const withFiles = {
    ...manifest,
    layers: manifest.layers.map((layer) => ({ ...layer, file: blobFile(layer.digest), blob: layer })),
  };
  return { digest, config, names: [], layers: layersOf(config, withFiles, architecture) };
}

/** The platform is often missing from an index with one image. */
function firstOf(index: Buffer, architecture: string): { digest: string } {
  const parsed = parseFile(index);
  if (!isIndex(parsed)) throw new ExplainedError('its index.json is invalid');
  if (parsed.manifests.length === 1) return { digest: parsed.manifests[0]!.digest };
  const found = readManifest(index, architecture);
  if ('config' in found) throw new ExplainedError('its index.json is invalid');
  return found;
}

async function readBlob(archive: ImageArchive, digest: string): Promise<Buffer> {
  const file = blobFile(digest);
  const bytes = await archive.read(file, MAX_DOCUMENT_BYTES);
  if (!bytes) throw new ExplainedError(`it is not complete: it has no file ${file}`);
  if (sha256Digest(bytes) !== digest) throw new PullError('mismatch', `the file ${file} has another digest`);
  return bytes;
}

function layersOf(
  config: Buffer,
  manifest: Omit<Manifest, 'layers'> & { layers: (Descriptor & Omit<ArchivedLayer, 'diffId'>)[] },
  architecture: string,
): ArchivedImage['layers'] {
  if (manifest.layers.length > MAX_LAYERS)
    throw new PullError('too_many_parts', `${manifest.layers.length} layers`);
  const diffIds = readConfig(config, manifest, architecture);
  return manifest.layers.map(({ file, blob }, index) => ({ file, blob, diffId: diffIds[index]! }));
}

function blobFile(digest: string): string {
  return `blobs/${digest.replace(':', '/')}`;
}

function parseFile(bytes: Buffer | undefined): unknown {
  return bytes && parseJson(bytes.toString());
}
