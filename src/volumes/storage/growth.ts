import type { FileHandle } from 'node:fs/promises';

/** More unwritten data would keep a thread busy for long at the end. */
const SYNC_BYTES = 16 * 1024 * 1024;

export type Step = <T>(piece: () => Promise<T>) => Promise<T>;

/** Writes a new file in pieces that take turns. `take` is told of each byte first, and may throw. */
export class Growth {
  private unsynced = 0;

  constructor(
    readonly step: Step,
    readonly take: (bytes: number) => void,
  ) {}

  async write(file: FileHandle, bytes: Buffer, position: number): Promise<void> {
    this.take(bytes.length);
    await this.step(async () => {
      for (let done = 0; done < bytes.length;) {
        done += (await file.write(bytes, done, bytes.length - done, position + done)).bytesWritten;
      }
    });
    this.unsynced += bytes.length;
    if (this.unsynced < SYNC_BYTES) return;
    this.unsynced = 0;
    await this.step(() => file.datasync());
  }
}
