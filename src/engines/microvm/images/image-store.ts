import { randomUUID } from 'node:crypto';
import { lstat, mkdir, open, readdir, readFile, rename, rm, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { Type } from 'typebox';
import { validatorOf } from '../../../http/validation.js';
import { syncDirectory } from '../../../lib/directories.js';
import { parseJson } from '../../../lib/json.js';
import type { ImageConfig } from '../../../registry/image-config.js';
import type { Step } from '../../../registry/step.js';
import { withDiskLock } from '../../../volumes/storage/disks/disk-lock.js';
import { ignoreMissing } from '../../../volumes/storage/guest-path.js';
import { BASE_FILE, sha256Of, type Base } from './build-base.js';

const RECORD_FILE = 'image.json';
const FORMAT = 1;
const DRAFT = '.new-';
const REMOVED = '.removed-';
const HEX = /^[0-9a-f]{64}$/;
/** A younger draft may not have its lock yet. */
const DRAFT_MS = 60_000;

export interface StoredImage {
  /** The digest of its configuration: the id that engines of containers give to the image. */
  digest: string;
  directory: string;
  base: Base;
  config: ImageConfig;
}

const Texts = Type.Array(Type.String());
const isRecord = validatorOf(
  Type.Object({
    format: Type.Literal(FORMAT),
    digest: Type.String(),
    base: Type.Object({ bytes: Type.Integer(), sha256: Type.String() }),
    config: Type.Object({
      env: Texts,
      cmd: Texts,
      entrypoint: Texts,
      user: Type.String(),
      workdir: Type.String(),
      stopSignal: Type.Union([Type.String(), Type.Null()]),
      exposedPorts: Texts,
      volumes: Texts,
    }),
  }),
);

/**
 * The images of microVMs: a directory for each, by the digest of its configuration, with the base and the record of it.
 * An image appears whole, by a rename, and goes by one. A sandbox holds its base by a hard link: an image whose base
 * has one name is unused, and the base of a removed image stays for its sandboxes.
 */
export class ImageStore {
  /** By image: the file whose content had the right digest. */
  private readonly verified = new Map<string, string>();

  /** `root`: created by the first image. */
  constructor(readonly root: string) {}

  async find(digest: string): Promise<StoredImage | undefined> {
    return this.read(hexOf(digest));
  }

  /** `uses`: the sandboxes and snapshots that hold the base. `inode`: that of the base, also in them. */
  async list(): Promise<(StoredImage & { uses: number; inode: number })[]> {
    const names = (await readdir(this.root).catch(ignoreMissing)) ?? [];
    const found = await Promise.all(
      names
        .filter((name) => HEX.test(name))
        .map(async (name) => {
          const image = await this.read(name);
          const base = image && (await lstat(join(image.directory, BASE_FILE)).catch(ignoreMissing));
          return image && base && { ...image, uses: base.nlink - 1, inode: base.ino };
        }),
    );
    return found.filter((image) => image !== undefined);
  }

  /**
   * Keeps the base that `build` makes in a directory. A crash leaves a draft, which nobody uses. Another process may
   * have been faster: its image stays.
   */
  async add(
    digest: string,
    config: ImageConfig,
    build: (directory: string) => Promise<Base>,
  ): Promise<StoredImage> {
    await mkdir(this.root, { recursive: true, mode: 0o700 });
    const draft = join(this.root, `${DRAFT}${randomUUID()}`);
    await mkdir(draft, { mode: 0o700 });
    try {
      // The lock says that the process of the draft lives.
      await withDiskLock(draft, async () => {
        const base = await build(draft);
        const identity = await identityIn(draft);
        await writeDurably(
          join(draft, RECORD_FILE),
          JSON.stringify({ format: FORMAT, digest, base, config }),
        );
        await syncDirectory(draft);
        // Between the look and the removal another process could put its image there.
        await withDiskLock(this.root, async () => {
          // A directory without a valid record is no image, and would stay in the way.
          if (!(await this.find(digest))) await this.remove(digest);
          const isFirst = await rename(draft, join(this.root, hexOf(digest))).then(
            () => true,
            ignoreExisting,
          );
          if (isFirst) this.verified.set(digest, identity);
          await syncDirectory(this.root);
        });
      });
    } finally {
      await rm(draft, { recursive: true, force: true });
    }
    const image = await this.find(digest);
    if (!image) throw new Error(`the image ${digest} was removed while it was added`);
    return image;
  }

  /**
   * Whether the base has the bytes of its record. They are read again only when the file is another one or has changed.
   */
  async isIntact(
    { digest, directory, base }: StoredImage,
    step: Step,
    signal: AbortSignal,
  ): Promise<boolean> {
    const file = await open(join(directory, BASE_FILE), 'r').catch(ignoreMissing);
    if (!file) return false;
    try {
      const identity = await identityOf(file);
      if (this.verified.get(digest) === identity) return true;
      if ((await sha256Of(file, step, signal)) !== base.sha256) return false;
      this.verified.set(digest, identity);
      return true;
    } finally {
      await file.close();
    }
  }

  /** False: there is no such image. */
  async remove(digest: string): Promise<boolean> {
    const removed = join(this.root, `${REMOVED}${randomUUID()}`);
    const isThere = await rename(join(this.root, hexOf(digest)), removed).then(
      () => true,
      (error: NodeJS.ErrnoException) => ignoreMissing(error) ?? false,
    );
    this.verified.delete(digest);
    await rm(removed, { recursive: true, force: true });
    return isThere;
  }

  /** Removes what killed processes left. */
  async removeLeftovers(): Promise<void> {
    const names = (await readdir(this.root).catch(ignoreMissing)) ?? [];
    for (const name of names) {
      const path = join(this.root, name);
      if (name.startsWith(REMOVED)) await rm(path, { recursive: true, force: true });
      if (name.startsWith(DRAFT)) await removeDraft(path);
    }
  }

  private async read(hex: string): Promise<StoredImage | undefined> {
    const directory = join(this.root, hex);
    const text = await readFile(join(directory, RECORD_FILE), 'utf8').catch(ignoreMissing);
    const record = text === undefined ? undefined : parseJson(text);
    if (!isRecord(record) || record.digest !== `sha256:${hex}`) return undefined;
    const { digest, base, config } = record;
    return { digest, directory, base, config };
  }
}

/** Removes a directory in which a process that has ended was making something under the lock of the directory. */
export async function removeDraft(path: string): Promise<void> {
  const found = await lstat(path).catch(ignoreMissing);
  if (!found || Date.now() - found.mtimeMs < DRAFT_MS) return;
  const remove = async () => rm(path, { recursive: true, force: true });
  // Its process holds the lock.
  await withDiskLock(path, remove, { waits: false }).catch(() => undefined);
}

async function writeDurably(path: string, text: string): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(text);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function identityIn(directory: string): Promise<string> {
  const file = await open(join(directory, BASE_FILE), 'r');
  try {
    return await identityOf(file);
  } finally {
    await file.close();
  }
}

async function identityOf(file: FileHandle): Promise<string> {
  const { dev, ino, size, mtimeNs } = await file.stat({ bigint: true });
  return `${dev} ${ino} ${size} ${mtimeNs}`;
}

function hexOf(digest: string): string {
  return digest.slice('sha256:'.length);
}

function ignoreExisting(error: NodeJS.ErrnoException): false {
  if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error;
  return false;
}
