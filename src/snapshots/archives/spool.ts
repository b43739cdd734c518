import { randomUUID } from 'node:crypto';
import { mkdir, open, unlink, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import type { DiskReserve } from '../../disk/disk-reserve.js';
import { chunksOf } from '../../http/upload.js';

const FOLDER = 'imports';

interface Receiving {
  /** Gets each chunk first, and may throw. */
  check: (chunk: Buffer) => void;
  signal: AbortSignal;
}

/** Bytes on the disk of the data directory, in a file without a name: nothing of them outlives the process. */
export class Spool {
  private constructor(
    readonly handle: FileHandle,
    private readonly disk: DiskReserve,
    private bytes: number,
  ) {}

  /** Throws `storage_full`, or an error of `check`. */
  static async receive(disk: DiskReserve, body: Readable, { check, signal }: Receiving): Promise<Spool> {
    const spool = await Spool.open(disk);
    try {
      for await (const chunk of chunksOf(body, check)) {
        signal.throwIfAborted();
        await spool.append(chunk);
      }
      return spool;
    } catch (error) {
      await spool.close();
      throw error;
    }
  }

  static async open(disk: DiskReserve): Promise<Spool> {
    const folder = join(disk.room('data')?.path ?? tmpdir(), FOLDER);
    await mkdir(folder, { recursive: true, mode: 0o700 });
    const path = join(folder, randomUUID());
    const handle = await open(path, 'wx+', 0o600);
    const spool = new Spool(handle, disk, 0);
    try {
      await unlink(path);
      return spool;
    } catch (error) {
      await spool.close();
      throw error;
    }
  }

  get length(): number {
    return this.bytes;
  }

  /** Throws `storage_full`. */
  async append(chunk: Buffer): Promise<void> {
    this.disk.take('data', chunk.length);
    this.bytes += chunk.length;
    await this.handle.writeFile(chunk);
  }

  async close(): Promise<void> {
    await this.handle.close();
    this.disk.giveBack('data', this.bytes);
  }
}
