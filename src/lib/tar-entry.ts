const BLOCK = 512;
const LARGEST_OCTAL = 8 ** 11 - 1;
const NO_BYTES = Buffer.alloc(0);

export const END_OF_ARCHIVE = Buffer.alloc(2 * BLOCK);

export function tarHeader(name: string, size: number, mode = 0o644): Buffer {
  const header = Buffer.alloc(BLOCK);
  header.write(name, 0, 100);
  header.write(`${mode.toString(8).padStart(7, '0')}\0${'0000000\0'.repeat(2)}`, 100);
  if (size > LARGEST_OCTAL) header.writeBigUInt64BE(BigInt(size), header.writeUInt32BE(0x80000000, 124));
  else header.write(`${size.toString(8).padStart(11, '0')}\0`, 124);
  header.write(`${'0'.repeat(11)}\0`, 136);
  header.write('        0', 148);
  header.write('ustar\x0000', 257);
  const checksum = header.reduce((sum, byte) => sum + byte, 0);
  header.write(`${checksum.toString(8).padStart(6, '0')}\0 `, 148);
  return header;
}

export function tarPadding(size: number): Buffer {
  return size % BLOCK === 0 ? NO_BYTES : Buffer.alloc(BLOCK - (size % BLOCK));
}
