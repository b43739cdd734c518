import { open, mkdir, rm } from 'node:fs/promises';
import { createReadStream } from 'node:fs';
import { join } from 'node:path';
import type { SlotQueue } from '../../../fairness/slot-queue.js';
import { readLayer, verified, type ImageBudget } from '../../../registry/layer-check.js';
import type { Descriptor } from '../../../registry/manifest.js';
import type { Pull } from '../../../registry/pull.js';
import type { Step } from '../../../registry/step.js';
import { buildBase, type Base } from './build-base.js';

const LAYERS = 'layers';

interface PulledLayer extends Descriptor {
  diffId: string;
}

export interface LayerSource {
  layers: readonly PulledLayer[];
  openBlob: (digest: string) => Promise<AsyncIterable<Buffer>>;
  budget: ImageBudget;
  step: Step;
  pull: Pull;
}

/** Downloads the layers into the directory, and makes the base there. `turns`: of organizations, for the base. */
export async function pullBase(directory: string, source: LayerSource, turns: SlotQueue): Promise<Base> {
  const { layers, budget, step, pull } = source;
  const downloads = join(directory, LAYERS);
  await mkdir(downloads, { mode: 0o700 });
  const files = new Map<string, string>();
  for (const layer of layers) {
    if (files.has(layer.digest)) continue;
    const file = join(downloads, String(files.size));
    files.set(layer.digest, file);
    await download(file, layer, source);
  }
  // A slow registry must not keep others from their turns, and the base needs no registry.
  pull.pause();
  const readable = layers.map(({ digest, diffId }) => ({
    diffId,
    open: async () => Promise.resolve(createReadStream(files.get(digest)!)),
  }));
  const { signal } = pull;
  const work = async () => buildBase(readable, { directory, budget, step, signal });
  const base = await turns.run(pull.orgId, work, signal);
  await rm(downloads, { recursive: true });
  return base;
}

/** Proves that the registry has the content of the layers, although the base is here already. */
export async function proveLayers({ layers, openBlob, budget, step, pull }: LayerSource): Promise<void> {
  const onPiece = async () => Promise.resolve(pull.signal.throwIfAborted());
  for (const { digest, size, diffId } of layers) {
    const blob = verified(await openBlob(digest), { digest, size }, step);
    await readLayer(blob, diffId, { budget, step, visitor: undefined, onPiece });
  }
}

async function download(file: string, layer: Descriptor, { openBlob, step }: LayerSource): Promise<void> {
  const handle = await open(file, 'wx', 0o600);
  try {
    for await (const chunk of verified(await openBlob(layer.digest), layer, step))
      await handle.writeFile(chunk);
  } finally {
    await handle.close();
  }
}
