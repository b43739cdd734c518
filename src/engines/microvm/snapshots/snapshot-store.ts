import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Type, type Static } from 'typebox';
import { validatorOf } from '../../../http/validation.js';
import { writeFileAtomically } from '../../../lib/atomic-file.js';
import { syncDirectory } from '../../../lib/directories.js';
import { parseJson } from '../../../lib/json.js';
import { newId } from '../../../lib/uuid.js';
import { withDiskLock } from '../../../volumes/storage/disks/disk-lock.js';
import { ignoreMissing } from '../../../volumes/storage/guest-path.js';
import { ImageDefaults, readText } from '../identity.js';
import { BASE_FILE } from '../images/build-base.js';
import { removeDraft } from '../images/image-store.js';

const RECORD_FILE = 'snapshot.json';
const DRAFT = '.new-';
const REMOVED = '.removed-';
const ID = /^[0-9a-f-]{36}$/;

const SnapshotRecord = Type.Object({
  format: Type.Literal(1),
  orgId: Type.String(),
  snapshotId: Type.String(),
  /** The size that sandboxes see. */
  diskMib: Type.Integer(),
  imageDigest: Type.String(),
  image: ImageDefaults,
  /** How many of them its disk has. */
  layers: Type.Integer({ minimum: 1 }),
  /** The room that they take. */
  bytes: Type.Integer(),
  /** The hash of the uppermost one. */
  contentDigest: Type.String(),
});
const isRecord = validatorOf(SnapshotRecord);
type SnapshotRecord = Static<typeof SnapshotRecord>;

export interface StoredSnapshot extends SnapshotRecord {
  directory: string;
}

/**
 * The snapshots of an engine: a directory for each, with links to the base and the layers, and the record of it. A
 * snapshot appears whole, by a rename, and goes by one. Sandboxes have links of their own, so none loses its base.
 */
export class SnapshotStore {
  /** `root`: created by the first snapshot. */
  constructor(private readonly root: string) {}

  async find(snapshotId: string): Promise<StoredSnapshot | undefined> {
    const directory = join(this.root, snapshotId);
    const text = await readText(join(directory, RECORD_FILE));
    const record = text === undefined ? undefined : parseJson(text);
    return isRecord(record) && record.snapshotId === snapshotId ? { ...record, directory } : undefined;
  }

  async list(): Promise<StoredSnapshot[]> {
    const names = (await readdir(this.root).catch(ignoreMissing)) ?? [];
    const found = await Promise.all(
      names.filter((name) => ID.test(name)).map(async (name) => this.find(name)),
    );
    return found.filter((snapshot) => snapshot !== undefined);
  }

  async basesOf(orgId: string): Promise<string[]> {
    const own = (await this.list()).filter((snapshot) => snapshot.orgId === orgId);
    return own.map(({ directory }) => join(directory, BASE_FILE));
  }

  /** Keeps what `build` makes in a directory, with its record. A crash leaves a draft. */
  async add(build: (draft: string) => Promise<Omit<SnapshotRecord, 'format'>>): Promise<StoredSnapshot> {
    await mkdir(this.root, { recursive: true, mode: 0o700 });
    const draft = join(this.root, `${DRAFT}${newId()}`);
    await mkdir(draft, { mode: 0o700 });
    try {
      // The lock says that the process of the draft lives: every process of an engine serves imports.
      return await withDiskLock(draft, async () => {
        const record: SnapshotRecord = { format: 1, ...(await build(draft)) };
        await writeFileAtomically(join(draft, RECORD_FILE), JSON.stringify(record), { replace: false });
        const directory = join(this.root, record.snapshotId);
        await rename(draft, directory);
        await syncDirectory(this.root);
        return { ...record, directory };
      });
    } finally {
      await rm(draft, { recursive: true, force: true });
    }
  }

  /** Idempotent. */
  async remove(snapshotId: string): Promise<void> {
    const removed = join(this.root, `${REMOVED}${newId()}`);
    await rename(join(this.root, snapshotId), removed).catch(ignoreMissing);
    await rm(removed, { recursive: true, force: true });
  }

  /** Removes what killed processes left. */
  async removeLeftovers(): Promise<void> {
    const names = (await readdir(this.root).catch(ignoreMissing)) ?? [];
    for (const name of names) {
      if (name.startsWith(REMOVED)) await rm(join(this.root, name), { recursive: true, force: true });
      else if (name.startsWith(DRAFT)) await removeDraft(join(this.root, name));
    }
  }
}
