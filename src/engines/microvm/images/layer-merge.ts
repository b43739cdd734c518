import type { TarEntry } from '../../../registry/tar-entry.js';
import type { TarVisitor } from '../../../registry/tar-scan.js';
import { BLOCK_BYTES } from './erofs-format.js';
import { fitsInline } from './erofs-metadata.js';
import type { File } from './inode.js';
import type { LayerTree } from './layer-tree.js';
import type { SequentialFile } from './sequential-file.js';

/**
 * Puts the entries of a layer into the tree, and the content of its files into the image. Whole blocks are written at
 * once. Short last parts become tails, which follow their inodes in the end.
 */
export class LayerMerge implements TarVisitor {
  private file: File | undefined;
  private left = 0;

  constructor(
    private readonly tree: LayerTree,
    private readonly image: SequentialFile,
    private readonly tails: SequentialFile,
  ) {}

  entry(entry: TarEntry): void {
    this.file = this.tree.add(entry);
    if (!this.file) return;
    const { size } = this.file;
    this.left = size;
    const last = size % BLOCK_BYTES;
    if (last > 0 && fitsInline(this.file, last)) this.file.tail = this.tails.position;
    if (this.file.tail === undefined || size > last) this.file.block = this.image.position / BLOCK_BYTES;
  }

  content(bytes: Buffer): void {
    if (!this.file) return;
    const { size, tail } = this.file;
    const ofTail = tail === undefined ? 0 : size % BLOCK_BYTES;
    const ofBlocks = bytes.subarray(0, Math.max(0, this.left - ofTail));
    this.image.append(ofBlocks);
    this.tails.append(bytes.subarray(ofBlocks.length));
    this.left -= bytes.length;
    if (this.left === 0) this.image.align(BLOCK_BYTES);
  }
}
