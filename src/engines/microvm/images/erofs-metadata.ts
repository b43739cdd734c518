import {
  BLOCK_BYTES,
  direntBytes,
  INODE_BYTES,
  packDirents,
  packInode,
  SLOT_BYTES,
  splitIntoBlocks,
  type Superblock,
} from './erofs-format.js';
import type { Directory, Inode } from './inode.js';
import type { LayerTree } from './layer-tree.js';
import { sorted } from './sorted.js';

/** The work between two turns of others. */
const PIECE = 500;
/** A longer last part gets a block of its own: beside inodes it would leave as much room unused. */
const MAX_INLINE_BYTES = BLOCK_BYTES / 2;
/** Programs take a file with the number 0 for a removed one. */
const FIRST_NID = INODE_BYTES / SLOT_BYTES;

export function fitsInline({ xattrs }: Pick<Inode, 'xattrs'>, bytes: number): boolean {
  return bytes <= MAX_INLINE_BYTES && INODE_BYTES + (xattrs?.length ?? 0) + bytes <= BLOCK_BYTES;
}

interface Placed {
  inode: Inode;
  links: number;
  nid: number;
  size: number;
  block: number;
  inlineBytes: number;
  /** The entries of a directory, in their order. */
  names: string[];
  parent: Placed | undefined;
}

/** The inodes of an image in the order of their serials, and where each of them is. */
export interface Placement {
  placed: readonly Placed[];
  of: ReadonlyMap<Inode, Placed>;
  /** After the blocks of directories and long symlinks. */
  metadataBlock: number;
  metadataBytes: number;
}

/** `firstBlock`: after the content of files. A step of the generator is short. */
export function* place(tree: LayerTree, firstBlock: number): Generator<void, Placement> {
  const of = yield* collect(tree.root);
  const bySerial = Array.from<Placed | undefined>({ length: tree.inodes });
  for (const found of of.values()) bySerial[found.inode.serial] = found;
  yield;
  let block = firstBlock;
  let position = FIRST_NID * SLOT_BYTES;
  const placed: Placed[] = [];
  for (const [serial, found] of bySerial.entries()) {
    if (serial % PIECE === 0) yield;
    if (found === undefined) continue;
    const { blocks, inlineBytes } = measure(found);
    if (blocks > 0) {
      found.block = block;
      block += blocks;
    }
    found.inlineBytes = inlineBytes;
    const bare = INODE_BYTES + (found.inode.xattrs?.length ?? 0);
    position = inlinePosition(position, bare, inlineBytes);
    found.nid = position / SLOT_BYTES;
    position = aligned(position + bare + inlineBytes, INODE_BYTES);
    placed.push(found);
  }
  return { placed, of, metadataBlock: block, metadataBytes: aligned(position, BLOCK_BYTES) };
}

function* collect(root: Directory): Generator<void, Map<Inode, Placed>> {
  const of = new Map<Inode, Placed>();
  const directories: { directory: Directory; placed: Placed }[] = [];
  const add = (inode: Inode, parent: Placed | undefined) => {
    const placed = newPlaced(inode, parent);
    of.set(inode, placed);
    if (inode.type === 'directory') directories.push({ directory: inode, placed });
    return placed;
  };
  add(root, undefined);
  let count = 0;
  for (let next = directories.pop(); next; next = directories.pop()) {
    const { directory, placed } = next;
    for (const { inode } of directory.children.values()) {
      const child = of.get(inode) ?? add(inode, placed);
      if (inode.type === 'directory') placed.links += 1;
      else child.links += 1;
      count += 1;
      if (count % PIECE === 0) yield;
    }
    placed.names = yield* sorted(['.', '..', ...directory.children.keys()]);
  }
  return of;
}

function newPlaced(inode: Inode, parent: Placed | undefined): Placed {
  // A directory has its name and its own entry.
  const links = inode.type === 'directory' ? 2 : 0;
  return { inode, parent, links, nid: 0, size: 0, block: 0, inlineBytes: 0, names: [] };
}

/** `blocks`: those that the content needs, without those of a file, which has them. */
function measure(placed: Placed): { blocks: number; inlineBytes: number } {
  const { inode } = placed;
  switch (inode.type) {
    case 'directory': {
      const parts = [...splitIntoBlocks(placed.names.map((name) => ({ name })))];
      return divide(placed, (parts.length - 1) * BLOCK_BYTES + direntBytes(parts.at(-1)!));
    }
    case 'symlink':
      return divide(placed, inode.target.length);
    case 'file':
      placed.size = inode.size;
      placed.block = inode.block;
      return { blocks: 0, inlineBytes: inode.tail === undefined ? 0 : inode.size % BLOCK_BYTES };
    case 'character':
    case 'block':
    case 'pipe':
      return { blocks: 0, inlineBytes: 0 };
  }
}

function divide(placed: Placed, size: number): { blocks: number; inlineBytes: number } {
  placed.size = size;
  const last = size % BLOCK_BYTES;
  const whole = (size - last) / BLOCK_BYTES;
  if (last === 0 || fitsInline(placed.inode, last)) return { blocks: whole, inlineBytes: last };
  return { blocks: whole + 1, inlineBytes: 0 };
}

/** The last part is within one block. */
function inlinePosition(position: number, bare: number, inlineBytes: number): number {
  const begin = position + bare;
  const isWithin =
    inlineBytes === 0 ||
    Math.floor(begin / BLOCK_BYTES) === Math.floor((begin + inlineBytes - 1) / BLOCK_BYTES);
  return isWithin ? position : aligned(position, BLOCK_BYTES);
}

/** The blocks of directories and long symlinks. */
export function* contentBlocks({ placed, of }: Placement): Generator<Buffer> {
  for (const each of placed) {
    if (each.inode.type !== 'directory' && each.inode.type !== 'symlink') continue;
    const whole = each.size - each.inlineBytes;
    if (whole > 0) yield* blocksOf(each, of, whole);
  }
}

function* blocksOf(placed: Placed, of: Placement['of'], whole: number): Generator<Buffer> {
  const { inode } = placed;
  if (inode.type === 'symlink') {
    yield padded(Buffer.from(inode.target, 'latin1'));
    return;
  }
  let left = whole;
  for (const part of parts(placed, of)) {
    if (left <= 0) return;
    yield padded(part());
    left -= BLOCK_BYTES;
  }
}

/** The packed entries of each block of a directory. */
function* parts({ inode, names, parent, nid }: Placed, of: Placement['of']): Generator<() => Buffer> {
  if (inode.type !== 'directory') return;
  const { children } = inode;
  for (const block of splitIntoBlocks(names.map((name) => ({ name })))) {
    yield () =>
      packDirents(
        block.map(({ name }) => {
          if (name === '.') return { name, type: 'directory', nid };
          if (name === '..') return { name, type: 'directory', nid: parent?.nid ?? nid };
          const child = children.get(name)!.inode;
          return { name, type: child.type, nid: of.get(child)!.nid };
        }),
      );
  }
}

/** `readTail` is called in the order of the tails. Yields pieces with their positions in the metadata. */
export async function* metadata(
  { placed, of }: Placement,
  readTail: (offset: number, length: number) => Promise<Buffer>,
): AsyncGenerator<{ position: number; bytes: Buffer }> {
  for (const [number, each] of placed.entries()) {
    const { inode, nid, links, size, block, inlineBytes } = each;
    const isInline = inlineBytes > 0;
    const parts = [packInode(inode, { number: number + 1, links, size, block, isInline })];
    if (inode.xattrs) parts.push(inode.xattrs);
    if (isInline) parts.push(await inlinePart(each, of, readTail));
    yield { position: nid * SLOT_BYTES, bytes: Buffer.concat(parts) };
  }
}

async function inlinePart(
  placed: Placed,
  of: Placement['of'],
  readTail: (offset: number, length: number) => Promise<Buffer>,
): Promise<Buffer> {
  const { inode, inlineBytes } = placed;
  if (inode.type === 'file') return readTail(inode.tail!, inlineBytes);
  if (inode.type === 'symlink') return Buffer.from(inode.target, 'latin1');
  return [...parts(placed, of)].at(-1)!();
}

export function superblockOf({ placed, metadataBlock, metadataBytes }: Placement): Superblock {
  const blocks = metadataBlock + metadataBytes / BLOCK_BYTES;
  return { rootNid: placed[0]!.nid, inodes: placed.length, blocks, metadataBlock };
}

function aligned(position: number, unit: number): number {
  return Math.ceil(position / unit) * unit;
}

function padded(bytes: Buffer): Buffer {
  return Buffer.concat([bytes], aligned(bytes.length, BLOCK_BYTES));
}
