import { posix } from 'node:path';
import { Serial } from '../../lib/serial.js';
import type { FileStat, Guest, GuestFiles } from '../../guest/guest.js';
import { BadPayload } from './payload.js';

/** The open files and directories of one connection. */
export const MAX_HANDLES = 1024;
/** The bytes of a list, which goes to the client as one frame of at most 4 MiB. */
const MAX_LIST = 4_000_000;
/** The bytes of an entry in a list, without its path. */
const ENTRY_BYTES = 128;

export type NamedStat = FileStat & { name: string };

/** The files of the sandbox for one connection: counts its handles, and bounds the memory that its lists need. */
export class ConnectionFiles {
  private readonly handles = new Set<number>();
  private opening = 0;
  private readonly lists = new Serial();
  readonly guest: GuestFiles;
  /** A list needs a handle beside those of the client. */
  private readonly listed: GuestFiles;

  /** `room` resolves when there is room for a large answer. */
  constructor(
    guest: Guest,
    private readonly room: () => Promise<void>,
  ) {
    this.guest = guest.files();
    this.listed = guest.files();
  }

  async open(opened: () => Promise<number>): Promise<number> {
    if (this.handles.size + this.opening >= MAX_HANDLES) {
      throw new BadPayload(`the connection has ${MAX_HANDLES} open files already`);
    }
    this.opening += 1;
    try {
      const handle = await opened();
      this.handles.add(handle);
      return handle;
    } finally {
      this.opening -= 1;
    }
  }

  check(handle: number): void {
    if (!this.handles.has(handle)) throw new BadPayload(`there is no open file ${handle}`);
  }

  async close(handle: number): Promise<void> {
    this.check(handle);
    this.handles.delete(handle);
    await this.guest.close(handle);
  }

  /** Lists one directory at a time. */
  async list(path: string): Promise<NamedStat[]> {
    return new Promise((resolve, reject) => {
      this.lists.run(() => this.listNext(path).then(resolve, reject));
    });
  }

  end(): void {
    this.guest.end();
    this.listed.end();
  }

  private async listNext(path: string): Promise<NamedStat[]> {
    await this.room();
    const handle = await this.listed.openDir(path);
    try {
      const entries: NamedStat[] = [];
      let bytes = 0;
      for (;;) {
        const batch = await this.listed.readDir(handle);
        if (batch.length === 0) return entries;
        for (const entry of batch) {
          const name = posix.join(path, entry.name);
          bytes += ENTRY_BYTES + Buffer.byteLength(name);
          entries.push({ ...entry, name });
        }
        if (bytes > MAX_LIST) throw new BadPayload(`the directory has too many entries for a list`);
      }
    } finally {
      await this.listed.close(handle);
    }
  }
}
