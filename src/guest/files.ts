import type { Buffer } from 'node:buffer';
import { bytesOfName, textOfName } from '../lib/byte-names.js';
import { errnoMessage, errnoName } from './errno.js';
import {
  GuestFileError,
  type FileAttributes,
  type FileStat,
  type GuestFiles,
  type OpenOptions,
} from './guest.js';
import { RequestWriter } from './wire.js';

const OPERATION = {
  stat: 1,
  setStat: 2,
  readLink: 3,
  symlink: 4,
  mkdir: 5,
  remove: 6,
  removeDir: 7,
  copy: 8,
  rename: 9,
  realPath: 10,
  open: 11,
  openDir: 12,
  close: 13,
  read: 14,
  write: 15,
  readDir: 16,
  statOpen: 17,
  setStatOpen: 18,
} as const;

/** The operations for which the agent starts a process. It answers all others before it reads on. */
export const IN_BACKGROUND: ReadonlySet<number> = new Set([OPERATION.removeDir, OPERATION.copy]);

const STAT_BYTES = 36;
const [EIO, EINVAL, ENAMETOOLONG] = [5, 22, 36];
/** `PATH_MAX` of Linux, with the NUL at the end. */
const MAX_PATH = 4_096;
/** No file system of Linux has longer names. */
const MAX_NAME = 1_024;
/** A client that copies a tree joins names to paths of its own machine. */
const NO_NAMES = new Set(['', '.', '..']);
/** The longest piece of a file in one frame. */
const MAX_PIECE = 196_608;

interface Transport {
  request(request: Buffer): Promise<{ errno: number; data: Buffer }>;
  end(): void;
}

/** The file operations of the agent. */
export class AgentFiles implements GuestFiles {
  constructor(
    private readonly owner: number,
    private readonly transport: Transport,
  ) {}

  async stat(path: string, { follow }: { follow: boolean }): Promise<FileStat> {
    return statOf(
      await this.ask(
        this.make('stat')
          .u8(follow ? 1 : 0)
          .path(checked(path)),
      ),
    );
  }

  async setStat(path: string, attributes: FileAttributes, { follow }: { follow: boolean }): Promise<void> {
    await this.ask(addAttributes(this.make('setStat').u8(follow ? 1 : 0), attributes).path(checked(path)));
  }

  async readLink(path: string): Promise<string> {
    return textOfName(await this.ask(this.make('readLink').path(checked(path))));
  }

  async symlink(target: string, path: string): Promise<void> {
    await this.ask(this.make('symlink').path(checked(target)).path(checked(path)));
  }

  async mkdir(path: string, mode: number | null): Promise<void> {
    await this.ask(
      this.make('mkdir')
        .u8(mode === null ? 0 : 1)
        .u32(mode ?? 0)
        .path(checked(path)),
    );
  }

  async remove(path: string): Promise<void> {
    await this.ask(this.make('remove').path(checked(path)));
  }

  async removeDir(path: string, { recursive }: { recursive: boolean }): Promise<void> {
    await this.ask(
      this.make('removeDir')
        .u8(recursive ? 1 : 0)
        .path(checked(path)),
    );
  }

  async copy(source: string, target: string): Promise<void> {
    await this.ask(this.make('copy').path(checked(source)).path(checked(target)));
  }

  async rename(source: string, target: string): Promise<void> {
    await this.ask(this.make('rename').path(checked(source)).path(checked(target)));
  }

  async realPath(path: string): Promise<string> {
    return textOfName(await this.ask(this.make('realPath').path(checked(path))));
  }

  async open(path: string, options: OpenOptions): Promise<number> {
    const flags =
      (options.read ? 1 : 0) |
      (options.write ? 2 : 0) |
      (options.append ? 4 : 0) |
      (options.create ? 8 : 0) |
      (options.truncate ? 16 : 0) |
      (options.createNew ? 32 : 0);
    return handleOf(await this.ask(this.make('open').u8(flags).u32(options.mode).path(checked(path))));
  }

  async openDir(path: string): Promise<number> {
    return handleOf(await this.ask(this.make('openDir').path(checked(path))));
  }

  async close(handle: number): Promise<void> {
    await this.ask(this.make('close').u32(handle));
  }

  async read(handle: number, offset: bigint, length: number): Promise<Buffer> {
    const wanted = Math.min(length, MAX_PIECE);
    const data = await this.ask(this.make('read').u32(handle).u64(offset).u32(wanted));
    if (data.length > wanted) throw fileError(EIO);
    return data;
  }

  async write(handle: number, offset: bigint, data: Buffer): Promise<void> {
    for (let at = 0; at < data.length; at += MAX_PIECE) {
      const piece = data.subarray(at, at + MAX_PIECE);
      await this.ask(
        this.make('write')
          .u32(handle)
          .u64(offset + BigInt(at))
          .bytes(piece),
      );
    }
  }

  async readDir(handle: number): Promise<(FileStat & { name: string })[]> {
    const data = await this.ask(this.make('readDir').u32(handle));
    const entries: (FileStat & { name: string })[] = [];
    for (let at = 0; at < data.length;) {
      const end = data.indexOf(0, at + STAT_BYTES);
      if (end < 0) throw fileError(EIO);
      const name = data.subarray(at + STAT_BYTES, end);
      if (name.length > MAX_NAME || name.includes('/') || NO_NAMES.has(name.toString('latin1')))
        throw fileError(EIO);
      entries.push({ ...statOf(data.subarray(at)), name: textOfName(name) });
      at = end + 1;
    }
    return entries;
  }

  async statOpen(handle: number): Promise<FileStat> {
    return statOf(await this.ask(this.make('statOpen').u32(handle)));
  }

  async setStatOpen(handle: number, attributes: FileAttributes): Promise<void> {
    await this.ask(addAttributes(this.make('setStatOpen').u32(handle), attributes));
  }

  end(): void {
    this.transport.end();
  }

  private make(operation: keyof typeof OPERATION): RequestWriter {
    return new RequestWriter().u8(OPERATION[operation]).u32(this.owner);
  }

  private async ask(request: RequestWriter): Promise<Buffer> {
    const { errno, data } = await this.transport.request(request.end());
    if (errno !== 0) throw fileError(errno);
    return data;
  }
}

function fileError(errno: number): GuestFileError {
  const message = errnoMessage(errno);
  return new GuestFileError(errno, errnoName(errno) ?? String(errno), `${message} (os error ${errno})`);
}

function checked(path: string): string {
  if (path.includes('\0')) throw fileError(EINVAL);
  if (bytesOfName(path).length >= MAX_PATH) throw fileError(ENAMETOOLONG);
  return path;
}

function addAttributes(request: RequestWriter, attributes: FileAttributes): RequestWriter {
  const { mode, uid, gid, size, atime, mtime } = attributes;
  const which = [mode, uid, gid, size, atime, mtime].reduce<number>(
    (bits, value, index) => (value === undefined ? bits : bits | (1 << index)),
    0,
  );
  return request
    .u8(which)
    .u32(mode ?? 0)
    .u32(uid ?? 0)
    .u32(gid ?? 0)
    .u64(size ?? 0n)
    .u64(atime ?? 0n)
    .u64(mtime ?? 0n);
}

/** Throws for an answer that is too short: a guest sent it. */
function statOf(data: Buffer): FileStat {
  if (data.length < STAT_BYTES) throw fileError(EIO);
  return {
    mode: data.readUInt32LE(0),
    uid: data.readUInt32LE(4),
    gid: data.readUInt32LE(8),
    size: data.readBigUInt64LE(12),
    mtime: data.readBigInt64LE(20),
    atime: data.readBigInt64LE(28),
  };
}

function handleOf(data: Buffer): number {
  if (data.length < 4) throw fileError(EIO);
  return data.readUInt32LE(0);
}
