import { randomBytes } from 'node:crypto';
import { open, rename, stat, unlink } from 'node:fs/promises';

const MIB = 1024 ** 2;

/** A file that takes space, to give it back when the database has none left. */
export class Ballast {
  constructor(
    private readonly path: string,
    readonly bytes: number,
  ) {}

  async isHeld(): Promise<boolean> {
    return (await stat(this.path).catch(() => undefined)) !== undefined;
  }

  async hold(): Promise<void> {
    const incomplete = `${this.path}.new`;
    const file = await open(incomplete, 'w', 0o600);
    try {
      // Not zeroes, which a file system may compress.
      for (let written = 0; written < this.bytes; written += MIB) await file.write(randomBytes(MIB));
      await file.sync();
    } finally {
      await file.close();
    }
    await rename(incomplete, this.path);
  }

  async release(): Promise<void> {
    for (const path of [this.path, `${this.path}.new`]) {
      await unlink(path).catch((error: NodeJS.ErrnoException) => {
        if (error.code !== 'ENOENT') throw error;
      });
    }
  }
}
