import { Buffer } from 'node:buffer';
import { existsSync, readdirSync } from 'node:fs';
import { readFile, realpath } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { ExplainedError } from '../../../lib/explained-error.js';
import { decompress } from './decompress.js';

const BOOT = '/boot';
const PREFIX = 'vmlinuz-';
/** Places in the header of a bzImage: see "The Linux/x86 Boot Protocol" of the kernel. */
const HEADER = { sectors: 0x1f1, magic: 0x202, version: 0x206, payload: 0x248, payloadLength: 0x24c };
const HEADER_MAGIC = 'HdrS';
const FIRST_VERSION_WITH_PAYLOAD = 0x0208;
const SECTOR = 512;
const ELF = Buffer.from('\x7fELF', 'latin1');

export interface Kernel {
  path: string;
  /** Such as `6.1.0-50-cloud-amd64`. */
  release: string;
  /** The directory of its modules. */
  modules: string;
}

/** The kernel of the option, or else the newest of the machine. Throws ExplainedError when there is none. */
export async function findKernel(path: string | undefined): Promise<Kernel> {
  const found = path === undefined ? newestKernel() : await realpath(path).catch(() => undefined);
  if (found === undefined)
    throw new ExplainedError(path === undefined ? NO_KERNEL : `there is no kernel at ${path}`);
  const name = basename(found);
  const release = name.startsWith(PREFIX) ? name.slice(PREFIX.length) : name;
  // A package that was unpacked elsewhere has its modules beside the directory of the kernel.
  const places = [join(dirname(found), '..', 'lib/modules', release), join('/lib/modules', release)];
  const modules = places.find((place) => existsSync(place));
  if (modules === undefined)
    throw new ExplainedError(
      `the kernel ${found} has no modules at ${places.join(' or ')}: install the whole package of the kernel`,
    );
  return { path: found, release, modules };
}

const NO_KERNEL = `there is no kernel at ${BOOT}/${PREFIX}*: install one, or name one with --microvm-kernel`;

function newestKernel(): string | undefined {
  const names = existsSync(BOOT) ? readdirSync(BOOT) : [];
  const order = new Intl.Collator('en', { numeric: true });
  const releases = names
    .filter((name) => name.startsWith(PREFIX) && !name.includes('rescue'))
    .toSorted(order.compare);
  const newest = releases.at(-1);
  return newest === undefined ? undefined : join(BOOT, newest);
}

/** The ELF file in a kernel: the machine starts it at once, without unpacking it first. */
export async function readKernel({ path }: Kernel): Promise<Buffer> {
  const image = await readFile(path);
  const payload = payloadOf(image);
  if (payload === undefined) return image;
  const kernel = await decompress(payload, path);
  // A kernel with an unknown compression unpacks itself.
  return kernel.subarray(0, ELF.length).equals(ELF) ? kernel : image;
}

/** Undefined: the file is no bzImage. */
function payloadOf(image: Buffer): Buffer | undefined {
  if (image.length < HEADER.payloadLength + 4) return undefined;
  if (image.toString('latin1', HEADER.magic, HEADER.magic + HEADER_MAGIC.length) !== HEADER_MAGIC)
    return undefined;
  if (image.readUInt16LE(HEADER.version) < FIRST_VERSION_WITH_PAYLOAD) return undefined;
  const begin = (image.readUInt8(HEADER.sectors) + 1) * SECTOR + image.readUInt32LE(HEADER.payload);
  return image.subarray(begin, begin + image.readUInt32LE(HEADER.payloadLength));
}
