import type { ReadPart } from './read-part.js';

const MAGIC = Buffer.from('KDMV', 'latin1');
const HEADER_BYTES = 79;
const SECTOR_BYTES = 512;
/** The directory of the grains is at the end, as streams have it. */
const AT_END = 0xffff_ffff_ffff_ffffn;
/** QEMU reads the description at this place and of this size, whatever the header says. */
const DESCRIPTION = { position: SECTOR_BYTES, length: 20 * SECTOR_BYTES };
const LARGEST_VERSION = 3;
const COMPRESSED = 1 << 16;
const CONVERT = 'convert it with "qemu-img convert -O vmdk -o subformat=monolithicSparse"';
/** Lines such as `RW 2048 SPARSE "disk.vmdk"`. */
const EXTENT = /^(?:RW|RDONLY|NOACCESS)\s+\d+\s+(\S+)/gim;

/** Undefined: it is VMDK of the kind "monolithicSparse", and names no other file. */
export async function explainVmdk(read: ReadPart, fileBytes: number): Promise<string | undefined> {
  const header = await read(0, HEADER_BYTES);
  if (header.length < HEADER_BYTES || !header.subarray(0, MAGIC.length).equals(MAGIC))
    return `it is not VMDK in one sparse file: ${CONVERT}`;
  if (header.readUInt32LE(4) > LARGEST_VERSION) return 'it is VMDK of an unknown version';
  // Without a capacity QEMU takes the extents that the description names.
  if (header.readBigUInt64LE(12) === 0n) return `it names other files: ${CONVERT}`;
  if (header.readBigUInt64LE(56) === AT_END || (header.readUInt32LE(8) & COMPRESSED) !== 0)
    return `it is VMDK for streams: ${CONVERT}`;
  const described = header.readBigUInt64LE(28) * BigInt(SECTOR_BYTES);
  if (described > BigInt(fileBytes)) return 'its header is damaged';
  for (const position of new Set([DESCRIPTION.position, Number(described)])) {
    const text = (await read(position, DESCRIPTION.length)).toString('latin1');
    if (/parentFileNameHint/i.test(text)) return `it names another file as its parent: ${CONVERT}`;
    const kinds = [...text.matchAll(EXTENT)].map(([, kind]) => kind!.toUpperCase());
    if (kinds.length > 1 || kinds.some((kind) => kind !== 'SPARSE'))
      return `it names other files: ${CONVERT}`;
  }
  return undefined;
}
