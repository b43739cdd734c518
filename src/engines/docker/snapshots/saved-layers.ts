import type Docker from 'dockerode';
import { createHash, type Hash } from 'node:crypto';
import type { Readable } from 'node:stream';
import type { LayerPart } from '../../../engine/snapshot-archives.js';
import type { Step } from '../../../registry/step.js';
import { TarScan } from '../../../registry/tar-scan.js';

interface Reading {
  step: Step;
  signal: AbortSignal;
}

interface SavedLayer {
  diffId: string;
  size: number;
}

/** The layers of a saved image, by the paths of their files. The same image has the same paths in each archive. */
export type LayerFiles = ReadonlyMap<string, SavedLayer>;

type FilePart = { path: string; size: number } | { bytes: Buffer };

/**
 * Finds the layers by their digests. An archive of `docker save` names them in its last file, and those of older
 * engines by ids of their own. Throws unless it has all.
 */
export async function findLayers(
  docker: Docker,
  imageId: string,
  diffIds: readonly string[],
  reading: Reading,
): Promise<LayerFiles> {
  const wanted = new Set(diffIds);
  const found = new Map<string, SavedLayer>();
  let file: { path: string; size: number; hash: Hash } | undefined;
  const end = () => {
    const diffId = file && `sha256:${file.hash.digest('hex')}`;
    if (file && diffId !== undefined && wanted.delete(diffId))
      found.set(file.path, { diffId, size: file.size });
  };
  for await (const part of savedFiles(docker, imageId, reading)) {
    if ('path' in part) {
      end();
      file = { ...part, hash: createHash('sha256') };
    } else {
      await reading.step(() => file?.hash.update(part.bytes));
    }
  }
  end();
  if (wanted.size > 0)
    throw new Error(`the engine saved an image without its layers ${[...wanted].join(', ')}`);
  return found;
}

/** Each layer once. Throws unless it has the digest under which it begins. */
export async function* readLayers(
  docker: Docker,
  imageId: string,
  files: LayerFiles,
  reading: Reading,
): AsyncGenerator<LayerPart> {
  let left = files.size;
  let layer: { diffId: string; hash: Hash } | undefined;
  const end = () => {
    if (layer && `sha256:${layer.hash.digest('hex')}` !== layer.diffId)
      throw new Error(`the engine saved other bytes of the layer ${layer.diffId} than before`);
    layer = undefined;
  };
  for await (const part of savedFiles(docker, imageId, reading)) {
    if ('path' in part) {
      end();
      const known = files.get(part.path);
      if (!known || known.size !== part.size) continue;
      left -= 1;
      layer = { diffId: known.diffId, hash: createHash('sha256') };
      yield { begin: known.diffId };
    } else if (layer) {
      const { hash } = layer;
      await reading.step(() => hash.update(part.bytes));
      yield part;
    }
  }
  end();
  if (left > 0) throw new Error('the engine saved fewer layers than before');
}

/** The files of the archive that the engine writes. The engine keeps it on its disk meanwhile. */
async function* savedFiles(
  docker: Docker,
  imageId: string,
  { step, signal }: Reading,
): AsyncGenerator<FilePart> {
  let parts: FilePart[] = [];
  const scan = new TarScan({
    entry({ type, path, size }) {
      if (type === 'file') parts.push({ path, size });
    },
    content: (bytes) => void parts.push({ bytes }),
  });
  const archive = await save(docker, imageId, signal);
  try {
    for await (const chunk of archive as AsyncIterable<Buffer>) {
      await step(() => scan.push(chunk));
      const ready = parts;
      parts = [];
      yield* ready;
    }
    scan.end();
  } finally {
    archive.destroy();
  }
}

/** The client library has no way to abort its own call. */
async function save(docker: Docker, imageId: string, signal: AbortSignal): Promise<Readable> {
  return new Promise((resolve, reject) => {
    const options = {
      path: `/images/${imageId}/get`,
      method: 'GET',
      isStream: true,
      abortSignal: signal,
      statusCodes: { 200: true, 404: 'no such image', 500: 'server error' },
    };
    docker.modem.dial(options, (error: Error | null, answer: unknown) => {
      if (error) reject(error);
      else resolve(answer as Readable);
    });
  });
}
