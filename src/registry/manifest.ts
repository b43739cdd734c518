import { Type, type Static } from 'typebox';
import { validatorOf, type Validator } from '../http/validation.js';
import { DIGEST } from '../spec/image-reference.js';
import { MAX_ENTRYPOINT_BYTES, MAX_LAYERS, MAX_VOLUMES } from './limits.js';
import { PullError } from './pull-error.js';
import { parseJson } from '../lib/json.js';

const Digest = Type.String({ pattern: DIGEST.source });
const Descriptor = Type.Object({
  mediaType: Type.Optional(Type.String()),
  digest: Digest,
  size: Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
});
const Index = Type.Object({
  manifests: Type.Array(
    Type.Object({
      digest: Digest,
      platform: Type.Optional(
        Type.Object({
          os: Type.String(),
          architecture: Type.String(),
          variant: Type.Optional(Type.String()),
        }),
      ),
    }),
  ),
});
const Manifest = Type.Object({
  schemaVersion: Type.Literal(2),
  config: Descriptor,
  layers: Type.Array(Descriptor),
});
const Config = Type.Object({
  os: Type.Optional(Type.String()),
  architecture: Type.Optional(Type.String()),
  rootfs: Type.Object({ diff_ids: Type.Array(Digest) }),
  config: Type.Optional(Type.Union([Type.Null(), Type.Object({ Volumes: Type.Optional(Type.Unknown()) })])),
});
const EntrypointConfig = Type.Object({
  os: Type.Optional(Type.String()),
  architecture: Type.Optional(Type.String()),
  config: Type.Optional(
    Type.Union([Type.Null(), Type.Object({ Entrypoint: Type.Optional(Type.Unknown()) })]),
  ),
});
const Words = Type.Union([Type.Null(), Type.Array(Type.String({ pattern: '^[^\\0]*$' }))]);
export type Manifest = Static<typeof Manifest>;
export type Descriptor = Static<typeof Descriptor>;

export const MANIFEST_TYPES = [
  'application/vnd.oci.image.index.v1+json',
  'application/vnd.docker.distribution.manifest.list.v2+json',
  'application/vnd.oci.image.manifest.v1+json',
  'application/vnd.docker.distribution.manifest.v2+json',
].join(', ');

const CONFIG_TYPE = /^application\/vnd\.(?:docker\.container\.image|oci\.image\.config)\.v1\+json$/;
const LAYER_TYPE =
  /^application\/vnd\.(?:docker\.image\.rootfs\.diff\.tar(?:\.gzip)?|oci\.image\.layer\.v1\.tar(?:\+gzip)?)$/;
const ZSTD_TYPE =
  /^application\/vnd\.(?:docker\.image\.rootfs\.diff\.tar\.zstd|oci\.image\.layer\.v1\.tar\+zstd)$/;

const isIndex = validatorOf(Index);
const isManifest = validatorOf(Manifest);
const isConfig = validatorOf(Config);
const isEntrypointConfig = validatorOf(EntrypointConfig);
const areWords = validatorOf(Words);

/** The digest of the manifest for a platform of Linux, or the manifest itself. `architecture`: in the words of Go. */
export function readManifest(bytes: Buffer, architecture: string): Manifest | { digest: string } {
  const document = parsed(bytes, isManifest) ?? parsed(bytes, isIndex);
  if (document === undefined) throw new PullError('unsupported', 'the manifest has an unknown format');
  if (!('manifests' in document)) return checked(document);
  const found = document.manifests.find(
    ({ platform }) => platform?.os === 'linux' && platform.architecture === architecture,
  );
  if (!found) throw new PullError('platform', `the index has no manifest for linux/${architecture}`);
  return { digest: found.digest };
}

function checked(manifest: Manifest): Manifest {
  const { config } = manifest;
  if (config.mediaType !== undefined && !CONFIG_TYPE.test(config.mediaType)) {
    throw new PullError('unsupported', 'the manifest describes no image of containers');
  }
  return manifest;
}

/** `zstd`: whether the caller uncompresses it. */
export function checkLayers({ layers }: Manifest, { zstd = false } = {}): void {
  if (layers.length > MAX_LAYERS) throw new PullError('too_many_parts', `${layers.length} layers`);
  const isKnown = (type: string) => LAYER_TYPE.test(type) || (zstd && ZSTD_TYPE.test(type));
  if (layers.some(({ mediaType }) => mediaType !== undefined && !isKnown(mediaType))) {
    throw new PullError('unsupported', 'a layer has an unsupported format');
  }
}

export function readConfig(bytes: Buffer, manifest: Manifest, architecture: string): readonly string[] {
  const found = parsed(bytes, isConfig);
  if (found?.rootfs.diff_ids.length !== manifest.layers.length) {
    throw new PullError('broken', 'the configuration does not describe the layers');
  }
  for (const object of [found, found.rootfs, found.config ?? {}]) refuseAliases(object);
  checkPlatform(found, architecture);
  if (Object.keys(found.config?.Volumes ?? {}).length > MAX_VOLUMES) {
    throw new PullError('too_many_parts', `more than ${MAX_VOLUMES} volumes`);
  }
  return found.rootfs.diff_ids;
}

/** Empty: the image has none. */
export function readEntrypoint(bytes: Buffer, architecture: string): string[] {
  const found = parsed(bytes, isEntrypointConfig);
  if (found === undefined) throw new PullError('broken', 'the configuration has an unknown format');
  checkPlatform(found, architecture);
  const words = found.config?.Entrypoint ?? null;
  if (!areWords(words)) throw new PullError('entrypoint', 'the entrypoint is no list of words');
  const length = Buffer.byteLength(JSON.stringify(words));
  if (length > MAX_ENTRYPOINT_BYTES) throw new PullError('entrypoint', `the entrypoint has ${length} bytes`);
  return words ?? [];
}

function checkPlatform(
  { os = 'linux', architecture: processor }: { os?: string; architecture?: string },
  architecture: string,
): void {
  if (os === 'linux' && (processor ?? architecture) === architecture) return;
  throw new PullError('platform', 'the configuration names another platform');
}

const NAMES = ['os', 'architecture', 'rootfs', 'diff_ids', 'config', 'Volumes'];

/** The engine ignores the case of keys: it could read another list of layers than the one that was checked. */
function refuseAliases(object: object): void {
  const folded = new Map(NAMES.map((name) => [name.toLowerCase(), name]));
  for (const key of Object.keys(object)) {
    const name = folded.get(key.normalize('NFKC').toLowerCase());
    if (name !== undefined && name !== key) {
      throw new PullError('broken', 'the configuration names a field twice');
    }
  }
}

function parsed<T>(bytes: Buffer, isValid: Validator<T>): T | undefined {
  const value = parseJson(bytes.toString());
  return isValid(value) ? value : undefined;
}
