import type { FileAttributes, FileStat } from '../../guest/guest.js';
import type { ConnectionFiles, NamedStat } from './connection-files.js';
import type { Payload } from './envelope.js';
import {
  readFlag,
  readInteger,
  readMap,
  readOptionalInteger,
  readOptionalUint64,
  readText,
} from './payload.js';

export const UINT32 = 0xffff_ffff;
const DEFAULT_MODE = 0o644;

export type Answer = { data: object | null };
export type Operation = (files: ConnectionFiles, op: Payload) => Promise<Answer>;

export const NOTHING: Answer = { data: null };

/** The operations with one answer and no data before it. */
export const OPERATIONS: Record<string, Operation> = {
  Stat: async (files, op) => {
    const path = readText(op, 'path');
    return stat(path, await files.guest.stat(path, { follow: readFlag(op, 'follow_symlink') }));
  },
  SetStat: async (files, op) => {
    const attributes = readAttributes(readMap(op, 'attrs'));
    await files.guest.setStat(readText(op, 'path'), attributes, { follow: readFlag(op, 'follow_symlink') });
    return NOTHING;
  },
  List: async (files, op) => list(await files.list(readText(op, 'path'))),
  ReadLink: async (files, op) => ({ data: { Path: await files.guest.readLink(readText(op, 'path')) } }),
  Symlink: async (files, op) => {
    await files.guest.symlink(readText(op, 'target'), readText(op, 'link_path'));
    return NOTHING;
  },
  Mkdir: async (files, op) => {
    await files.guest.mkdir(readText(op, 'path'), readOptionalInteger(op, 'mode', UINT32) ?? null);
    return NOTHING;
  },
  Remove: async (files, op) => {
    await files.guest.remove(readText(op, 'path'));
    return NOTHING;
  },
  RemoveDir: async (files, op) => {
    await files.guest.removeDir(readText(op, 'path'), { recursive: readFlag(op, 'recursive') });
    return NOTHING;
  },
  Copy: async (files, op) => {
    await files.guest.copy(readText(op, 'src'), readText(op, 'dst'));
    return NOTHING;
  },
  Rename: async (files, op) => {
    await files.guest.rename(readText(op, 'src'), readText(op, 'dst'));
    return NOTHING;
  },
  RealPath: async (files, op) => ({ data: { Path: await files.guest.realPath(readText(op, 'path')) } }),
  OpenFile: async (files, op) => {
    const options = readMap(op, 'options');
    const path = readText(op, 'path');
    const wanted = {
      read: readFlag(options, 'read'),
      write: readFlag(options, 'write'),
      append: readFlag(options, 'append'),
      create: readFlag(options, 'create'),
      truncate: readFlag(options, 'truncate'),
      createNew: readFlag(options, 'create_new'),
      mode: readOptionalInteger(options, 'mode', UINT32) ?? DEFAULT_MODE,
    };
    return { data: { Handle: await files.open(() => files.guest.open(path, wanted)) } };
  },
  OpenDir: async (files, op) => {
    const path = readText(op, 'path');
    return { data: { Handle: await files.open(() => files.guest.openDir(path)) } };
  },
  CloseHandle: async (files, op) => {
    await files.close(readInteger(op, 'handle', 0, UINT32));
    return NOTHING;
  },
  ReadDir: async (files, op) => list(await files.guest.readDir(readInteger(op, 'handle', 0, UINT32))),
  FStat: async (files, op) => stat('', await files.guest.statOpen(readInteger(op, 'handle', 0, UINT32))),
  FSetStat: async (files, op) => {
    await files.guest.setStatOpen(readInteger(op, 'handle', 0, UINT32), readAttributes(readMap(op, 'attrs')));
    return NOTHING;
  },
};

const WRITES = new Set([
  'SetStat',
  'Symlink',
  'Mkdir',
  'Remove',
  'RemoveDir',
  'Copy',
  'Rename',
  'FSetStat',
  'Write',
]);
const CHANGING_OPTIONS = ['create', 'create_new', 'truncate'];

/** Whether an operation changes something; the number of these is in the audit trail. */
export function changesFiles(name: string, op: Payload): boolean {
  if (name !== 'OpenFile') return WRITES.has(name);
  const options = readMap(op, 'options');
  return CHANGING_OPTIONS.some((option) => readFlag(options, option));
}

function stat(path: string, found: FileStat): Answer {
  return { data: { Stat: presentEntry(path, found) } };
}

function list(entries: readonly NamedStat[]): Answer {
  return { data: { List: entries.map((entry) => presentEntry(entry.name, entry)) } };
}

const KINDS: Record<number, string> = { 0o040000: 'dir', 0o100000: 'file', 0o120000: 'symlink' };
const TYPE_BITS = 0o170000;

function presentEntry(path: string, { mode, size, uid, gid, mtime, atime }: FileStat): object {
  return {
    path,
    kind: KINDS[mode & TYPE_BITS] ?? 'other',
    size,
    mode,
    modified: mtime,
    uid,
    gid,
    atime,
    mtime,
  };
}

function readAttributes(attrs: Payload): FileAttributes {
  const attributes = {
    mode: readOptionalInteger(attrs, 'mode', UINT32),
    uid: readOptionalInteger(attrs, 'uid', UINT32),
    gid: readOptionalInteger(attrs, 'gid', UINT32),
    size: readOptionalUint64(attrs, 'size'),
    atime: readOptionalUint64(attrs, 'atime'),
    mtime: readOptionalUint64(attrs, 'mtime'),
  };
  return Object.fromEntries(Object.entries(attributes).filter(([, value]) => value !== undefined));
}
