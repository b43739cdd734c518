import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { Writable } from 'node:stream';
import { callbackify } from 'node:util';

/** Writes to an open file, which stays open, and hashes what it writes. */
export class FileTarget extends Writable {
  bytes = 0;
  private readonly hash = createHash('sha256');

  constructor(private readonly handle: FileHandle) {
    super();
  }

  override _write(chunk: Buffer, _: BufferEncoding, done: (error?: Error | null) => void): void {
    this.hash.update(chunk);
    this.bytes += chunk.length;
    callbackify(() => this.writeAll(chunk))(done);
  }

  sha256(): string {
    return this.hash.copy().digest('hex');
  }

  private async writeAll(chunk: Buffer): Promise<void> {
    for (let at = 0; at < chunk.length;) at += (await this.handle.write(chunk, at)).bytesWritten;
  }
}
