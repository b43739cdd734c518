import { Buffer } from 'node:buffer';

/** An entry of an initial file system. A directory is before its files. */
export type CpioEntry = { path: string } & (
  | { type: 'directory' }
  | { type: 'file'; mode: number; content: Buffer }
  /** A character device. */
  | { type: 'device'; major: number; minor: number }
);

const TYPES = { directory: 0o040755, file: 0o100000, device: 0o020600 };
const LAST = 'TRAILER!!!';

/** An archive in the format "newc", which the kernel unpacks. Every file belongs to root, and has no time. */
export function makeCpio(entries: readonly CpioEntry[]): Buffer {
  const parts = entries.map((entry, at) => {
    const mode = TYPES[entry.type] | (entry.type === 'file' ? entry.mode : 0);
    const content = entry.type === 'file' ? entry.content : Buffer.alloc(0);
    const device = entry.type === 'device' ? entry : { major: 0, minor: 0 };
    return record({ inode: at + 1, mode, device, path: entry.path, content });
  });
  return Buffer.concat([
    ...parts,
    record({
      inode: 0,
      mode: 0,
      device: { major: 0, minor: 0 },
      path: LAST,
      content: Buffer.alloc(0),
    }),
  ]);
}

function record(file: {
  inode: number;
  mode: number;
  device: { major: number; minor: number };
  path: string;
  content: Buffer;
}): Buffer {
  const name = Buffer.from(`${file.path}\0`);
  const { major, minor } = file.device;
  const fields = [
    file.inode,
    file.mode,
    0, // user
    0, // group
    1, // links
    0, // time
    file.content.length,
    0, // device of the file system
    0,
    major,
    minor,
    name.length,
    0, // no checksum
  ];
  const header = Buffer.from(`070701${fields.map(hex).join('')}`);
  return Buffer.concat([padded(Buffer.concat([header, name])), padded(file.content)]);
}

function hex(value: number): string {
  return value.toString(16).padStart(8, '0');
}

/** The parts begin at multiples of four bytes. */
function padded(bytes: Buffer): Buffer {
  return Buffer.concat([bytes, Buffer.alloc(-bytes.length & 3)]);
}
