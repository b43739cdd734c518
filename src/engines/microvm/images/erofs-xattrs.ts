import { PullError } from '../../../registry/pull-error.js';

/** The prefixes of names, by their numbers in EROFS. The ACLs have no further name. */
const PREFIXES: readonly (readonly [prefix: string, index: number])[] = [
  ['user.', 1],
  ['system.posix_acl_access', 2],
  ['system.posix_acl_default', 3],
  ['trusted.', 4],
  ['security.', 6],
];
/** The file system of a sandbox is an overlay on the image, and would read these as its own. */
const OVERLAY = 'trusted.overlay.';
const HEADER_BYTES = 12;
const ENTRY_BYTES = 4;
const MAX_NAME = 255;
/** The limits of Linux, for one value and for all values of a file. */
const MAX_VALUE = 65_535;
const MAX_ALL = 65_536;

/** The extended attributes as they follow an inode. Null: none. Throws PullError. */
export function packXattrs(xattrs: ReadonlyMap<string, string>): Buffer | null {
  const entries = [...xattrs]
    .filter(([name]) => !name.startsWith(OVERLAY))
    .flatMap(([name, value]) => entryOf(name, value));
  if (entries.length === 0) return null;
  const all = Buffer.concat([Buffer.alloc(HEADER_BYTES), ...entries]);
  if (all.length > MAX_ALL) throw new PullError('too_many_parts', 'a file has too many extended attributes');
  return all;
}

/** The number of units of four bytes, with one for the header. */
export function xattrUnits(xattrs: Buffer | null): number {
  return xattrs === null ? 0 : (xattrs.length - HEADER_BYTES) / ENTRY_BYTES + 1;
}

/** None for a name space that the kernel does not know. */
function entryOf(name: string, value: string): Buffer[] {
  const [prefix, index] = PREFIXES.find(([prefix]) => name.startsWith(prefix)) ?? [];
  if (prefix === undefined || index === undefined) return [];
  const suffix = name.slice(prefix.length);
  const isAcl = !prefix.endsWith('.');
  if (isAcl ? suffix !== '' : suffix === '') return [];
  if (suffix.length > MAX_NAME || value.length > MAX_VALUE)
    throw new PullError('broken', 'a layer has an extended attribute that is too long');
  const length = ENTRY_BYTES + suffix.length + value.length;
  const entry = Buffer.alloc(Math.ceil(length / ENTRY_BYTES) * ENTRY_BYTES);
  entry.writeUInt8(suffix.length, 0);
  entry.writeUInt8(index, 1);
  entry.writeUInt16LE(value.length, 2);
  entry.write(suffix + value, ENTRY_BYTES, 'latin1');
  return [entry];
}
