import { PullError } from './pull-error.js';

const TYPES = {
  '0': 'file',
  '\0': 'file',
  '1': 'link',
  '2': 'symlink',
  '3': 'character',
  '4': 'block',
  '5': 'directory',
  '6': 'pipe',
} as const;

/** Names, targets and values are bytes, each of them a character of a text in Latin-1. */
export interface TarEntry {
  type: (typeof TYPES)[keyof typeof TYPES];
  path: string;
  /** The target of a hard link or a symlink. */
  target: string;
  /** Without the type. */
  mode: number;
  uid: number;
  gid: number;
  /** Since 1970. May be negative. */
  seconds: number;
  nanos: number;
  major: number;
  minor: number;
  xattrs: ReadonlyMap<string, string>;
  size: number;
  /** The position of the content in the archive. */
  position: number;
}

/** The values of the extended headers before an entry. */
export interface Extensions {
  /** Records of POSIX. */
  records?: ReadonlyMap<string, string>;
  /** Names of GNU. */
  name?: string;
  target?: string;
}

const PERMISSIONS = 0o7777;
const MAX_ID = 0xffff_fffe;
const MAX_MINOR = 0xf_ffff;
const MAX_MAJOR = 0xfff;
const XATTR = 'SCHILY.xattr.';
const POSIX = 'ustar\0';
const GNU = 'ustar ';
const NO_XATTRS: ReadonlyMap<string, string> = new Map();

/** Reads what Go's archive/tar reads, with which layers are written and unpacked elsewhere. Throws PullError. */
export function readEntry(
  header: Buffer,
  { records, name, target }: Extensions,
  content: Pick<TarEntry, 'size' | 'position'>,
): TarEntry {
  const format = header.toString('latin1', 257, 263);
  const prefix = format === POSIX ? text(header, 345, 500) : '';
  const own = text(header, 0, 100);
  const path = name ?? records?.get('path') ?? (prefix === '' ? own : `${prefix}/${own}`);
  const hasDevice = format === POSIX || format === GNU;
  const typeflag = String.fromCharCode(header[156]!) as keyof typeof TYPES;
  const { seconds, nanos } = timeOf(records?.get('mtime')) ?? { seconds: number(header, 136, 148), nanos: 0 };
  return {
    type: typeflag === '\0' && path.endsWith('/') ? 'directory' : TYPES[typeflag],
    path: withoutNul(path),
    target: withoutNul(target ?? records?.get('linkpath') ?? text(header, 157, 257)),
    mode: number(header, 100, 108) & PERMISSIONS,
    uid: bounded(idOf(records?.get('uid')) ?? number(header, 108, 116), MAX_ID),
    gid: bounded(idOf(records?.get('gid')) ?? number(header, 116, 124), MAX_ID),
    seconds,
    nanos,
    major: hasDevice ? bounded(number(header, 329, 337), MAX_MAJOR) : 0,
    minor: hasDevice ? bounded(number(header, 337, 345), MAX_MINOR) : 0,
    xattrs: xattrsIn(records),
    ...content,
  };
}

function text(header: Buffer, begin: number, end: number): string {
  return header.toString('latin1', begin, end).split('\0', 1)[0]!;
}

/** Octal digits, or with the highest bit set a signed number of base 256. */
function number(header: Buffer, begin: number, end: number): number {
  if ((header[begin]! & 0x80) !== 0) {
    const bytes = Buffer.from(header.subarray(begin, end));
    const isNegative = (bytes[0]! & 0x40) !== 0;
    bytes[0]! &= 0x7f;
    if (isNegative) bytes[0]! |= 0x80;
    const value = BigInt.asIntN(bytes.length * 8, BigInt(`0x${bytes.toString('hex')}`));
    return safe(Number(value));
  }
  const digits = text(header, begin, end).replace(/ +$/, '').replace(/^ +/, '');
  if (!/^[0-7]*$/.test(digits)) throw new PullError('broken', 'a header of a layer has an invalid number');
  return Number.parseInt(digits || '0', 8);
}

function idOf(record: string | undefined): number | undefined {
  if (record === undefined) return undefined;
  if (!/^\d{1,15}$/.test(record)) throw new PullError('broken', 'an entry of a layer has an invalid owner');
  return Number(record);
}

function timeOf(record: string | undefined): { seconds: number; nanos: number } | undefined {
  if (record === undefined) return undefined;
  const [, sign, whole = '', fraction = ''] = /^(-?)(\d{1,15})(?:\.(\d{0,30}))?$/.exec(record) ?? [];
  if (sign === undefined) throw new PullError('broken', 'an entry of a layer has an invalid time');
  const seconds = Number(whole);
  const nanos = Number(fraction.slice(0, 9).padEnd(9, '0'));
  if (sign === '') return { seconds, nanos };
  return nanos === 0 ? { seconds: 0 - seconds, nanos } : { seconds: -seconds - 1, nanos: 1e9 - nanos };
}

function xattrsIn(records: ReadonlyMap<string, string> | undefined): ReadonlyMap<string, string> {
  const found = [...(records ?? [])].filter(([key]) => key.startsWith(XATTR));
  if (found.length === 0) return NO_XATTRS;
  return new Map(found.map(([key, value]) => [withoutNul(key.slice(XATTR.length)), value]));
}

function withoutNul(name: string): string {
  if (name.includes('\0')) throw new PullError('broken', 'a name in a layer has the byte 0');
  return name;
}

function bounded(value: number, most: number): number {
  if (value < 0 || value > most)
    throw new PullError('broken', 'a header of a layer has an impossible number');
  return value;
}

function safe(value: number): number {
  if (!Number.isSafeInteger(value))
    throw new PullError('broken', 'a header of a layer has an impossible number');
  return value;
}
