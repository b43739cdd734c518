import type { ReadPart } from './read-part.js';

const MAGIC = Buffer.from('QFI\xfb', 'latin1');
/** Version 2 has so many bytes, and version 3 at least the longer one. */
const SHORT_HEADER = 72;
const LONG_HEADER = 104;
const LONGEST_HEADER = 4_096;
const LARGEST_EXTENSION = 1_024 * 1_024;
const SMALLEST_CLUSTER_BITS = 9;
const LARGEST_CLUSTER_BITS = 21;
/** Features of version 3 that a reader must know: not closed cleanly, zstd, and long entries of level 2. */
const DIRTY = 1n << 0n;
const CORRUPT = 1n << 1n;
const DATA_FILE = 1n << 2n;
const COMPRESSION = 1n << 3n;
const LONG_ENTRIES = 1n << 4n;
const KNOWN = DIRTY | CORRUPT | DATA_FILE | COMPRESSION | LONG_ENTRIES;
/** Header extensions, of docs/interop/qcow2.txt of QEMU. */
const END = 0;
const DATA_FILE_NAME = 0x44415441;

const OTHER_FILE =
  'it names another file, and a disk must be in one file: convert it with "qemu-img convert -O qcow2"';

/** Undefined: it is qcow2, and names no other file. */
export async function explainQcow2(read: ReadPart): Promise<string | undefined> {
  const header = await read(0, LONG_HEADER);
  if (header.length < SHORT_HEADER || !header.subarray(0, MAGIC.length).equals(MAGIC))
    return 'it is not qcow2';
  const version = header.readUInt32BE(4);
  if (version !== 2 && version !== 3) return `it is qcow2 of the unknown version ${version}`;
  if (header.readBigUInt64BE(8) !== 0n || header.readUInt32BE(16) !== 0) return OTHER_FILE;
  const clusterBits = header.readUInt32BE(20);
  if (clusterBits < SMALLEST_CLUSTER_BITS || clusterBits > LARGEST_CLUSTER_BITS)
    return 'its header is damaged';
  if (header.readUInt32BE(32) !== 0) return 'it is encrypted';
  if (version === 2) return explainExtensions(read, SHORT_HEADER, 2 ** clusterBits);
  if (header.length < LONG_HEADER) return 'its header is damaged';
  const features = header.readBigUInt64BE(72);
  if ((features & DATA_FILE) !== 0n) return OTHER_FILE;
  if ((features & CORRUPT) !== 0n) return 'it is marked as corrupt: repair it with "qemu-img check -r all"';
  if ((features & ~KNOWN) !== 0n) return 'it has features that are not known here';
  const length = header.readUInt32BE(100);
  if (length < LONG_HEADER || length > LONGEST_HEADER || length % 8 !== 0) return 'its header is damaged';
  return explainExtensions(read, length, 2 ** clusterBits);
}

/** They are in the first cluster. */
async function explainExtensions(
  read: ReadPart,
  begin: number,
  clusterBytes: number,
): Promise<string | undefined> {
  for (let position = begin; position + 8 <= clusterBytes;) {
    const head = await read(position, 8);
    if (head.length < 8) return 'its header is damaged';
    const [type, length] = [head.readUInt32BE(0), head.readUInt32BE(4)];
    if (type === END) return undefined;
    if (type === DATA_FILE_NAME) return OTHER_FILE;
    if (length > LARGEST_EXTENSION) return 'its header is damaged';
    position += 8 + Math.ceil(length / 8) * 8;
  }
  return undefined;
}
