import { Buffer } from 'node:buffer';
import { mkdir, open, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { ExportRefusedError, type EngineRoom } from '../../../engine/snapshot-archives.js';
import { newId } from '../../../lib/uuid.js';
import { LIMIT } from '../../../guest/protocol.js';

const READ_BYTES = 64 * 1024;
const ZEROS = Buffer.alloc(LIMIT.archivePiece);

/** Bytes. `whole`: of the archive. `kept`: of the disk of the machine. */
export interface MostOfArchive {
  whole: number;
  kept: number;
}

/**
 * An archive on the disk of the engine, in a file without a name: nothing of it outlives this process. A hole of a file
 * is zeros in an archive, and costs the sandbox nothing. So pieces of zeros are holes of this file too.
 */
export class ArchiveSpool {
  size = 0;
  private kept = 0;
  private closed: Promise<void> | undefined;

  private constructor(
    private readonly file: FileHandle,
    private readonly room: EngineRoom,
    private readonly most: MostOfArchive,
  ) {}

  static async open(directory: string, room: EngineRoom, most: MostOfArchive): Promise<ArchiveSpool> {
    await mkdir(directory, { recursive: true, mode: 0o700 });
    const path = join(directory, newId());
    const file = await open(path, 'wx+', 0o600);
    await rm(path, { force: true });
    return new ArchiveSpool(file, room, most);
  }

  /** `piece`: of at most `LIMIT.archivePiece`. Throws ExportRefusedError, and what the room throws. */
  async add(piece: Buffer): Promise<void> {
    const at = this.size;
    this.size += piece.length;
    if (this.size > this.most.whole) throw new ExportRefusedError(TOO_LARGE);
    if (piece.equals(ZEROS.subarray(0, piece.length))) return;
    if (this.kept + piece.length > this.most.kept) throw new ExportRefusedError(TOO_MUCH);
    this.room.take(piece.length);
    this.kept += piece.length;
    // A disk that is nearly full takes a part.
    for (let done = 0; done < piece.length;)
      done += (await this.file.write(piece, done, piece.length - done, at + done)).bytesWritten;
  }

  /** After the last piece, which may have been zeros. */
  async finish(): Promise<void> {
    await this.file.truncate(this.size);
  }

  async *read(): AsyncGenerator<Buffer> {
    for (let at = 0; at < this.size;) {
      const { bytesRead, buffer } = await this.file.read(Buffer.alloc(READ_BYTES), 0, READ_BYTES, at);
      if (bytesRead === 0) throw new Error('the archive of the snapshot was cut off');
      yield buffer.subarray(0, bytesRead);
      at += bytesRead;
    }
  }

  async close(): Promise<void> {
    this.closed ??= this.file.close().then(() => this.room.giveBack(this.kept));
    return this.closed;
  }
}

const TOO_LARGE =
  'its files have more than twice the bytes of its disk: remove files with holes, and capture the sandbox again';
const TOO_MUCH =
  'its files have more than twice the bytes that the snapshot and its image take: remove some of the files with several names, and capture the sandbox again';
