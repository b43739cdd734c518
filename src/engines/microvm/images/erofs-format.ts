import type { Inode } from './inode.js';
import { xattrUnits } from './erofs-xattrs.js';

/**
 * The parts of EROFS that Linux reads since 5.4, uncompressed: fs/erofs/erofs_fs.h of the kernel has the layout. Each
 * inode has the long form, which has the time and owners of 32 bits.
 */
export const BLOCK_BYTES = 4_096;
/** Inodes are numbered by their position in units of this size. */
export const SLOT_BYTES = 32;
export const INODE_BYTES = 64;

const MAGIC = 0xe0f5e1e2;
const SUPERBLOCK_OFFSET = 1_024;
const BLOCK_BITS = 12;
const LONG_FORM = 1;
const PLAIN = 0;
const INLINE = 2;
const DIRENT_BYTES = 12;

const MODES = {
  pipe: 0o010000,
  character: 0o020000,
  directory: 0o040000,
  block: 0o060000,
  file: 0o100000,
  symlink: 0o120000,
} as const;
const DIRENT_TYPES = { file: 1, directory: 2, character: 3, block: 4, pipe: 5, symlink: 7 } as const;

export interface Superblock {
  rootNid: number;
  inodes: number;
  /** The size of the image. */
  blocks: number;
  /** The block of the first inode. */
  metadataBlock: number;
}

/** The first block of the image. */
export function packSuperblock({ rootNid, inodes, blocks, metadataBlock }: Superblock): Buffer {
  const block = Buffer.alloc(BLOCK_BYTES);
  const superblock = block.subarray(SUPERBLOCK_OFFSET);
  superblock.writeUInt32LE(MAGIC, 0);
  superblock.writeUInt8(BLOCK_BITS, 12);
  superblock.writeUInt16LE(rootNid, 14);
  superblock.writeBigUInt64LE(BigInt(inodes), 16);
  superblock.writeUInt32LE(blocks, 36);
  superblock.writeUInt32LE(metadataBlock, 40);
  return block;
}

export interface Placement {
  number: number;
  links: number;
  size: number;
  /** The first whole block of the content. */
  block: number;
  /** The last part follows the inode. */
  isInline: boolean;
}

export function packInode(inode: Inode, { number, links, size, block, isInline }: Placement): Buffer {
  const bytes = Buffer.alloc(INODE_BYTES);
  bytes.writeUInt16LE(LONG_FORM | ((isInline ? INLINE : PLAIN) << 1), 0);
  bytes.writeUInt16LE(xattrUnits(inode.xattrs), 2);
  bytes.writeUInt16LE(MODES[inode.type] | inode.mode, 4);
  bytes.writeBigUInt64LE(BigInt(size), 8);
  bytes.writeUInt32LE('major' in inode ? deviceNumber(inode.major, inode.minor) : block, 16);
  bytes.writeUInt32LE(number, 20);
  bytes.writeUInt32LE(inode.uid, 24);
  bytes.writeUInt32LE(inode.gid, 28);
  bytes.writeBigInt64LE(BigInt(inode.seconds), 32);
  bytes.writeUInt32LE(inode.nanos, 40);
  bytes.writeUInt32LE(links, 44);
  return bytes;
}

/** `new_encode_dev` of the kernel. */
function deviceNumber(major: number, minor: number): number {
  return ((minor & 0xff) | (major << 8) | ((minor & ~0xff) << 12)) >>> 0;
}

export interface Dirent {
  /** Its bytes are characters of a text in Latin-1. */
  name: string;
  type: Inode['type'];
  nid: number;
}

/** The entries of each block of a directory. `names`: in their order. */
export function* splitIntoBlocks<T extends { name: string }>(dirents: readonly T[]): Generator<T[]> {
  let block: T[] = [];
  let bytes = 0;
  for (const dirent of dirents) {
    const more = DIRENT_BYTES + dirent.name.length;
    if (bytes + more > BLOCK_BYTES) {
      yield block;
      block = [];
      bytes = 0;
    }
    block.push(dirent);
    bytes += more;
  }
  yield block;
}

export function direntBytes(dirents: readonly { name: string }[]): number {
  return dirents.reduce((sum, { name }) => sum + DIRENT_BYTES + name.length, 0);
}

export function packDirents(dirents: readonly Dirent[]): Buffer {
  const bytes = Buffer.alloc(direntBytes(dirents));
  let nameAt = dirents.length * DIRENT_BYTES;
  for (const [index, { name, type, nid }] of dirents.entries()) {
    const at = index * DIRENT_BYTES;
    bytes.writeBigUInt64LE(BigInt(nid), at);
    bytes.writeUInt16LE(nameAt, at + 8);
    bytes.writeUInt8(DIRENT_TYPES[type], at + 10);
    bytes.write(name, nameAt, 'latin1');
    nameAt += name.length;
  }
  return bytes;
}
