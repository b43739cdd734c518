import type { Buffer } from 'node:buffer';
import { bytesOfName, textOfName } from '../lib/byte-names.js';
import { errnoMessage, errnoName, errnoOf } from './errno.js';
import {
  GuestFileError,
  type FileAttributes,
  type FileStat,
  type GuestFiles,
  type OpenOptions,
} from './guest.js';
import { FILE_OPERATION, LAYOUT, LIMIT, OPEN, SET } from './protocol.js';
import { decode, RequestWriter, sizeOf } from './wire.js';

/** The operations for which the agent starts a process. It answers all others before it reads on. */
export const IN_BACKGROUND: ReadonlySet<number> = new Set([FILE_OPERATION.removeDir, FILE_OPERATION.copy]);

const STAT_BYTES = sizeOf(LAYOUT.stat);
const [EIO, EINVAL, ENAMETOOLONG] = [errnoOf('EIO'), errnoOf('EINVAL'), errnoOf('ENAMETOOLONG')];
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
    await this.ask(addAttributes(this.make('set').u8(follow ? 1 : 0), attributes).path(checked(path)));
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
        .fields(LAYOUT.mkdir, { hasMode: mode === null ? 0 : 1, mode: mode ?? 0 })
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
      (options.read ? OPEN.read : 0) |
      (options.write ? OPEN.write : 0) |
      (options.append ? OPEN.append : 0) |
      (options.create ? OPEN.create : 0) |
      (options.truncate ? OPEN.truncate : 0) |
      (options.createNew ? OPEN.new : 0);
    return handleOf(
      await this.ask(
        this.make('open').fields(LAYOUT.open, { flags, mode: options.mode }).path(checked(path)),
      ),
    );
  }

  async openDir(path: string): Promise<number> {
    return handleOf(await this.ask(this.make('openDir').path(checked(path))));
  }

  async close(handle: number): Promise<void> {
    await this.ask(this.make('close').u32(handle));
  }

  async read(handle: number, offset: bigint, length: number): Promise<Buffer> {
    const wanted = Math.min(length, MAX_PIECE);
    const data = await this.ask(this.make('read').fields(LAYOUT.read, { handle, offset, length: wanted }));
    if (data.length > wanted) throw fileError(EIO);
    return data;
  }

  async write(handle: number, offset: bigint, data: Buffer): Promise<void> {
    for (let at = 0; at < data.length; at += MAX_PIECE) {
      const piece = data.subarray(at, at + MAX_PIECE);
      await this.ask(
        this.make('write')
          .fields(LAYOUT.write, { handle, offset: offset + BigInt(at) })
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
    await this.ask(addAttributes(this.make('setOpen').u32(handle), attributes));
  }

  end(): void {
    this.transport.end();
  }

  private make(operation: keyof typeof FILE_OPERATION): RequestWriter {
    return new RequestWriter().fields(LAYOUT.files, {
      operation: FILE_OPERATION[operation],
      owner: this.owner,
    });
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
  if (bytesOfName(path).length >= LIMIT.path) throw fileError(ENAMETOOLONG);
  return path;
}

function addAttributes(request: RequestWriter, attributes: FileAttributes): RequestWriter {
  const { mode, uid, gid, size, atime, mtime } = attributes;
  const names = Object.keys(SET) as (keyof typeof SET)[];
  return request.fields(LAYOUT.attributes, {
    which: names.reduce((bits, name) => (attributes[name] === undefined ? bits : bits | SET[name]), 0),
    mode: mode ?? 0,
    uid: uid ?? 0,
    gid: gid ?? 0,
    size: size ?? 0n,
    atime: atime ?? 0n,
    mtime: mtime ?? 0n,
  });
}

/** Throws for an answer that is too short: a guest sent it. */
function statOf(data: Buffer): FileStat {
  if (data.length < STAT_BYTES) throw fileError(EIO);
  return decode(LAYOUT.stat, data);
}

function handleOf(data: Buffer): number {
  if (data.length < 4) throw fileError(EIO);
  return data.readUInt32LE(0);
}
