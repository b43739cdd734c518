import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import tar from 'tar-stream';
import { configOf, digestOf, remoteImage } from './private-registry.js';

export type Files = Record<string, Buffer | { link: string }>;

/** The files of `docker save`, as engines before the OCI layout wrote them. */
export function savedFiles(
  layers: Buffer[],
  { names = ['team/app:1'], config = {} }: Partial<Saved> = {},
): Files {
  const bytes = configOf(layers, { config });
  const file = `${digestOf(bytes).slice(7)}.json`;
  const Layers = layers.map((_, index) => `${index}/layer.tar`);
  return {
    ...Object.fromEntries(layers.map((layer, index) => [Layers[index], layer])),
    [file]: bytes,
    'manifest.json': json([{ Config: file, RepoTags: names, Layers }]),
  };
}

interface Saved {
  names: string[] | null;
  /** The part of the configuration that is about programs. */
  config: object;
}

/** The files of the OCI image layout. `packed`: the layers as they are stored. */
export function layoutFiles(layers: Buffer[], packed = layers): Files {
  const { manifest, digest, blobs } = remoteImage(configOf(layers), packed);
  const mediaType = 'application/vnd.oci.image.manifest.v1+json';
  const index = { schemaVersion: 2, manifests: [{ mediaType, digest, size: manifest.length }] };
  const all = [...blobs, [digest, manifest] as const];
  return {
    'oci-layout': json({ imageLayoutVersion: '1.0.0' }),
    'index.json': json(index),
    ...Object.fromEntries(all.map(([name, bytes]) => [`blobs/${name.replace(':', '/')}`, bytes])),
  };
}

export async function writeArchive(path: string, files: Files): Promise<string> {
  const archive = tar.pack();
  for (const [name, content] of Object.entries(files)) {
    if ('link' in content) archive.entry({ name, type: 'symlink', linkname: content.link });
    else archive.entry({ name }, content);
  }
  archive.finalize();
  writeFileSync(path, await buffer(archive));
  return path;
}

export function writeFolder(path: string, files: Files): string {
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(path, name)), { recursive: true });
    writeFileSync(join(path, name), content as Buffer);
  }
  return path;
}

function json(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value));
}
