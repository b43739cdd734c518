import type { SnapshotImage } from '../../engine/snapshot-archives.js';
import { shortInstant } from '../../lib/instant.js';
import { END_OF_ARCHIVE, tarHeader, tarPadding } from '../../lib/tar-entry.js';
import { configDocument } from '../../registry/image-config.js';
import { sha256Digest } from '../../registry/sha256-digest.js';
import type { CompleteSnapshot } from '../queries.js';

/** The repository of an exported image, for engines that load it. No engine of the service uses it. */
const REPOSITORY = 'sandkeep-export';
const OCI = 'application/vnd.oci.image';
const BLOCK = 512;

/** An archive in the OCI image layout, which `docker load` of engines before that format takes as well. */
export interface Layout {
  /** The digest of the image manifest. */
  digest: string;
  bytes: number;
  content: AsyncIterable<Buffer>;
}

type Described = Pick<
  CompleteSnapshot,
  'id' | 'name' | 'digest' | 'image' | 'image_digest' | 'sandbox_name' | 'labels' | 'created_at'
>;

/** The documents come first: a reader of the stream knows each layer before its bytes. */
export function layoutOf(snapshot: Described, image: SnapshotImage): Layout {
  const { platform, created, layers } = image;
  const config = blobOf({
    created,
    ...platform,
    config: { ...configDocument(image.config), Labels: snapshot.labels },
    rootfs: { type: 'layers', diff_ids: layers.map(({ diffId }) => diffId) },
  });
  const manifest = blobOf({
    schemaVersion: 2,
    mediaType: `${OCI}.manifest.v1+json`,
    config: { mediaType: `${OCI}.config.v1+json`, digest: config.digest, size: config.bytes.length },
    layers: layers.map(({ diffId, size }) => ({
      mediaType: `${OCI}.layer.v1.tar`,
      digest: diffId,
      size,
    })),
    annotations: annotationsOf(snapshot),
  });
  const tag = `${REPOSITORY}:${snapshot.name}`;
  const index = {
    schemaVersion: 2,
    mediaType: `${OCI}.index.v1+json`,
    manifests: [
      {
        mediaType: `${OCI}.manifest.v1+json`,
        digest: manifest.digest,
        size: manifest.bytes.length,
        platform,
        annotations: {
          'org.opencontainers.image.ref.name': snapshot.name,
          'io.containerd.image.name': `docker.io/library/${tag}`,
        },
      },
    ],
  };
  const Layers = layers.map(({ diffId }) => pathOf(diffId));
  const files: [string, Buffer][] = [
    ['oci-layout', jsonOf({ imageLayoutVersion: '1.0.0' })],
    ['index.json', jsonOf(index)],
    ['manifest.json', jsonOf([{ Config: pathOf(config.digest), RepoTags: [tag], Layers }])],
    [pathOf(manifest.digest), manifest.bytes],
    [pathOf(config.digest), config.bytes],
  ];
  const sizes = new Map(layers.map(({ diffId, size }) => [diffId, size]));
  const lengths = [...files.map(([, { length }]) => length), ...sizes.values()];
  return {
    digest: manifest.digest,
    bytes: lengths.reduce((sum, length) => sum + BLOCK + padded(length), END_OF_ARCHIVE.length),
    content: write(files, sizes, image),
  };
}

async function* write(
  files: readonly [string, Buffer][],
  sizes: ReadonlyMap<string, number>,
  image: SnapshotImage,
): AsyncGenerator<Buffer> {
  for (const [path, bytes] of files) {
    yield Buffer.concat([tarHeader(path, bytes.length), bytes, tarPadding(bytes.length)]);
  }
  let padding: Buffer | undefined;
  for await (const part of image.read()) {
    if ('bytes' in part) {
      yield part.bytes;
      continue;
    }
    if (padding) yield padding;
    const size = sizes.get(part.begin)!;
    yield tarHeader(pathOf(part.begin), size);
    padding = tarPadding(size);
  }
  if (padding) yield padding;
  yield END_OF_ARCHIVE;
}

function annotationsOf(snapshot: Described): Record<string, string> {
  const prefix = 'dev.sandkeep.snapshot';
  return {
    'org.opencontainers.image.title': snapshot.name,
    'org.opencontainers.image.created': shortInstant(snapshot.created_at),
    [`${prefix}.id`]: snapshot.id,
    [`${prefix}.digest`]: snapshot.digest,
    [`${prefix}.labels`]: JSON.stringify(snapshot.labels),
    ...sourceOf(snapshot, prefix),
  };
}

/** An imported snapshot has no image below it. */
function sourceOf(
  { sandbox_name: name, image, image_digest: digest }: Described,
  prefix: string,
): Record<string, string> {
  if (name === null) return {};
  const base = 'org.opencontainers.image.base';
  return {
    [`${prefix}.source-sandbox`]: name,
    [`${base}.name`]: image,
    ...(digest === null ? {} : { [`${base}.digest`]: digest }),
  };
}

function blobOf(document: object): { digest: string; bytes: Buffer } {
  const bytes = jsonOf(document);
  return { digest: sha256Digest(bytes), bytes };
}

function jsonOf(document: object): Buffer {
  return Buffer.from(JSON.stringify(document));
}

function pathOf(digest: string): string {
  return `blobs/${digest.replace(':', '/')}`;
}

function padded(length: number): number {
  return Math.ceil(length / BLOCK) * BLOCK;
}
