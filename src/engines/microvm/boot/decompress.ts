import type { Buffer } from 'node:buffer';
import { execFile } from 'node:child_process';
import { gunzipSync } from 'node:zlib';
import { ExplainedError } from '../../../lib/explained-error.js';

/** A kernel without compression has about 60 MB. */
const MAX_BYTES = 512 * 1024 * 1024;

interface Format {
  magic: number[];
  program: [name: string, ...args: string[]];
}

/** Bytes after the end of the compressed data are ignored. */
const FORMATS: readonly Format[] = [
  { magic: [0xfd, 0x37, 0x7a, 0x58, 0x5a, 0x00], program: ['xz', '-dc', '--single-stream'] },
  { magic: [0x28, 0xb5, 0x2f, 0xfd], program: ['zstd', '-dcq'] },
  { magic: [0x02, 0x21, 0x4c, 0x18], program: ['lz4', '-dcq'] },
];
const GZIP = [0x1f, 0x8b];

/** Decompresses a kernel or a module by its first bytes. Returns others as they are. */
export async function decompress(bytes: Buffer, name: string): Promise<Buffer> {
  if (startsWith(bytes, GZIP)) return gunzipSync(bytes, { maxOutputLength: MAX_BYTES });
  const format = FORMATS.find(({ magic }) => startsWith(bytes, magic));
  return format ? run(format.program, bytes, name) : bytes;
}

function startsWith(bytes: Buffer, magic: readonly number[]): boolean {
  return magic.every((byte, at) => bytes[at] === byte);
}

function run([program, ...args]: Format['program'], input: Buffer, name: string): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    const options = { encoding: 'buffer', maxBuffer: MAX_BYTES } as const;
    const child = execFile(program, args, options, (error, stdout) => {
      if (error?.code === 'ENOENT')
        reject(
          new ExplainedError(`the program "${program}" is missing, which decompresses ${name}: install it`),
        );
      // It complains of the bytes after the end, but the output is complete: its user checks it.
      else if (error && stdout.length === 0)
        reject(new Error(`${program} cannot decompress ${name}`, { cause: error }));
      else resolve(stdout);
    });
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(input);
  });
}
