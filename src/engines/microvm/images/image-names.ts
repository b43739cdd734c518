import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Type } from 'typebox';
import { validatorOf } from '../../../http/validation.js';
import { writeFileAtomically } from '../../../lib/atomic-file.js';
import { parseJson } from '../../../lib/json.js';
import { formatImageReference, type ImageReference } from '../../../spec/image-reference.js';
import { ignoreMissing } from '../../../volumes/storage/guest-path.js';

const DIRECTORY = 'names';

export interface ImageName {
  /** In its normal form. */
  reference: string;
  /** The digest of the image. */
  digest: string;
}

const isName = validatorOf(Type.Object({ reference: Type.String(), digest: Type.String() }));

/** The names that the operator gives to imported images. Every organization may use them. A file holds each. */
export class ImageNames {
  private readonly root: string;

  constructor(images: string) {
    this.root = join(images, DIRECTORY);
  }

  async find(reference: ImageReference): Promise<ImageName | undefined> {
    return this.read(this.pathOf(reference));
  }

  async list(): Promise<ImageName[]> {
    const files = (await readdir(this.root).catch(ignoreMissing)) ?? [];
    const names = await Promise.all(
      files.filter((file) => file.endsWith('.json')).map(async (file) => this.read(join(this.root, file))),
    );
    return names
      .filter((name) => name !== undefined)
      .toSorted((a, b) => (a.reference < b.reference ? -1 : Number(a.reference > b.reference)));
  }

  async set(reference: ImageReference, digest: string): Promise<void> {
    await mkdir(this.root, { recursive: true, mode: 0o700 });
    const text = JSON.stringify({ reference: formatImageReference(reference), digest });
    await writeFileAtomically(this.pathOf(reference), text, { replace: true });
  }

  async remove(reference: ImageReference): Promise<void> {
    await rm(this.pathOf(reference), { force: true });
  }

  private async read(path: string): Promise<ImageName | undefined> {
    const text = await readFile(path, 'utf8').catch(ignoreMissing);
    const name = text === undefined ? undefined : parseJson(text);
    return isName(name) ? name : undefined;
  }

  private pathOf(reference: ImageReference): string {
    const hash = createHash('sha256').update(formatImageReference(reference)).digest('hex');
    return join(this.root, `${hash}.json`);
  }
}
