import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { writeFileAtomically } from '../../../lib/atomic-file.js';
import { ignoreMissing } from '../../../volumes/storage/guest-path.js';

const DIRECTORY = 'pulled';

/** The images that were pulled: a file for each tag has the digest of the image. */
export class PulledTags {
  private readonly root: string;

  constructor(images: string) {
    this.root = join(images, DIRECTORY);
  }

  async find(tag: string): Promise<string | undefined> {
    return readFile(join(this.root, tag), 'utf8').catch(ignoreMissing);
  }

  async set(tag: string, digest: string): Promise<void> {
    await mkdir(this.root, { recursive: true, mode: 0o700 });
    await writeFileAtomically(join(this.root, tag), digest, { replace: true });
  }

  /** Removes the tags of an image. */
  async remove(digest: string): Promise<void> {
    for (const tag of (await readdir(this.root).catch(ignoreMissing)) ?? []) {
      if ((await this.find(tag)) === digest) await rm(join(this.root, tag), { force: true });
    }
  }
}
