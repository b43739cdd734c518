import { createHash } from 'node:crypto';
import { open, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { readLayer, type ImageBudget } from '../../../registry/layer-check.js';
import type { Step } from '../../../registry/step.js';
import { BLOCK_BYTES, packSuperblock } from './erofs-format.js';
import { contentBlocks, metadata, place, superblockOf, type Placement } from './erofs-metadata.js';
import { LayerMerge } from './layer-merge.js';
import { LayerTree } from './layer-tree.js';
import { SequentialFile } from './sequential-file.js';

export const BASE_FILE = 'base.erofs';
const TAILS_FILE = 'tails';
const READ_BYTES = 1_024 * 1_024;
const HASH_BYTES = 128 * 1_024;
/** The inodes between two turns of others. */
const PIECE = 200;

export interface Layer {
  diffId: string;
  /** As the registry or the archive has it. */
  open: () => Promise<AsyncIterable<Buffer>>;
}

export interface BaseOptions {
  /** Gets the file of the image. */
  directory: string;
  budget: Pick<ImageBudget, 'take'>;
  step: Step;
  signal: AbortSignal;
}

export interface Base {
  bytes: number;
  /** The hash of all bytes. */
  sha256: string;
}

/**
 * Merges layers into one read-only file system: an image of EROFS. Equal layers make equal bytes. Nothing of a layer is
 * unpacked on this machine, so owners, devices and names need no rights here. Throws PullError, an error of a source or
 * of the disk, or the reason of the signal.
 */
export async function buildBase(layers: readonly Layer[], options: BaseOptions): Promise<Base> {
  const { directory, step } = options;
  const image = await open(join(directory, BASE_FILE), 'wx+', 0o600);
  try {
    const tails = await open(join(directory, TAILS_FILE), 'wx+', 0o600);
    try {
      await write(layers, { ...options, image, tails });
    } finally {
      await tails.close();
      await rm(join(directory, TAILS_FILE));
    }
    await image.sync();
    const { size } = await image.stat();
    return { bytes: size, sha256: await sha256Of(image, step, options.signal) };
  } finally {
    await image.close();
  }
}

interface Files {
  image: FileHandle;
  tails: FileHandle;
}

async function write(layers: readonly Layer[], options: BaseOptions & Files): Promise<void> {
  const { budget, step, signal } = options;
  const tree = new LayerTree();
  const image = new SequentialFile(options.image);
  const tails = new SequentialFile(options.tails);
  // The superblock comes last: without it, nothing can be mounted.
  image.append(Buffer.alloc(BLOCK_BYTES));
  const visitor = new LayerMerge(tree, image, tails);
  const onPiece = async () => {
    signal.throwIfAborted();
    await image.drain();
    await tails.drain();
  };
  for (const { diffId, open } of layers) {
    tree.beginLayer();
    await readLayer(await open(), diffId, { budget, step, visitor, onPiece });
  }
  await tails.end();
  const placement = await inSteps(place(tree, image.position / BLOCK_BYTES), step);
  for (const block of contentBlocks(placement)) {
    await step(() => image.append(block));
    await onPiece();
  }
  await writeInodes(placement, image, new TailReader(options.tails), options);
  await options.image.write(packSuperblock(superblockOf(placement)), 0, BLOCK_BYTES, 0);
}

async function writeInodes(
  placement: Placement,
  image: SequentialFile,
  tails: TailReader,
  { step, signal }: BaseOptions,
): Promise<void> {
  const begin = image.position;
  let count = 0;
  for await (const { position, bytes } of metadata(placement, (offset, length) =>
    tails.read(offset, length),
  )) {
    image.advance(begin + position);
    image.append(bytes);
    count += 1;
    if (count % PIECE > 0) continue;
    signal.throwIfAborted();
    await step(() => undefined);
    await image.drain();
  }
  image.advance(begin + placement.metadataBytes);
  await image.end();
}

async function inSteps<T>(work: Generator<void, T>, step: Step): Promise<T> {
  for (;;) {
    const next = await step(() => work.next());
    if (next.done === true) return next.value;
  }
}

/** Reads short parts in their order. */
class TailReader {
  private window: Buffer = Buffer.alloc(0);
  private begin = 0;

  constructor(private readonly file: FileHandle) {}

  async read(offset: number, length: number): Promise<Buffer> {
    if (offset + length > this.begin + this.window.length) {
      const { buffer, bytesRead } = await this.file.read(Buffer.alloc(READ_BYTES), 0, READ_BYTES, offset);
      this.window = buffer.subarray(0, bytesRead);
      this.begin = offset;
    }
    return this.window.subarray(offset - this.begin, offset - this.begin + length);
  }
}

export async function sha256Of(file: FileHandle, step: Step, signal: AbortSignal): Promise<string> {
  const hash = createHash('sha256');
  const buffer = Buffer.alloc(HASH_BYTES);
  for (let position = 0; ;) {
    signal.throwIfAborted();
    const { bytesRead } = await file.read(buffer, 0, HASH_BYTES, position);
    if (bytesRead === 0) return hash.digest('hex');
    await step(() => hash.update(buffer.subarray(0, bytesRead)));
    position += bytesRead;
  }
}
