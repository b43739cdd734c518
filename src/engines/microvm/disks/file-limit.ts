import type { FileHandle } from 'node:fs/promises';
import type { Disk } from '../monitor.js';

const MIB = 1024 * 1024;
const SECTOR_BYTES = 512;
/** The tables of the format, also with its smallest clusters. */
const TABLES = 1 / 16;
const HEADERS_MIB = 64;
/** More than a file system allows for a file. */
const LARGEST_MIB = 2 ** 30;

/** The largest file of a disk that a sandbox has written wholly, in MiB. */
export function fileLimit(diskMib: number): number {
  return Math.min(Math.ceil(diskMib * (1 + TABLES)), LARGEST_MIB) + HEADERS_MIB;
}

/**
 * The same for a disk image, whose header has the size that the sandbox sees. A caller has written the header, so the
 * cap of the volume bounds the file.
 */
export async function fileLimitOfImage(file: FileHandle, format: Disk['format']): Promise<number> {
  const { size } = await file.stat();
  return fileLimit(Math.max(size, await seenBytes(file, format)) / MIB);
}

async function seenBytes(file: FileHandle, format: Disk['format']): Promise<number> {
  const read = async (position: number) => (await file.read(Buffer.alloc(8), 0, 8, position)).buffer;
  switch (format) {
    case 'raw':
      return 0;
    case 'qcow2':
      return Number((await read(24)).readBigUInt64BE());
    case 'vmdk':
      return Number((await read(12)).readBigUInt64LE()) * SECTOR_BYTES;
  }
}
