import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, utimesSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { SnapshotStore } from '../../../src/engines/microvm/snapshots/snapshot-store.js';
import { newId } from '../../../src/lib/uuid.js';

const RECORD = {
  orgId: 'o',
  diskMib: 1,
  imageDigest: 'd',
  image: { env: [], entrypoint: [], user: '', workdir: '', stopSignal: null },
  layers: 1,
  bytes: 1,
  contentDigest: 'c',
};

test('a process removes old drafts, and none that another process is making', async () => {
  const root = mkdtempSync(join(tmpdir(), 'sandkeep-snapshots-'));
  onTestFinished(() => rmSync(root, { recursive: true }));
  const [one, other] = [new SnapshotStore(root), new SnapshotStore(root)];
  mkdirSync(join(root, '.new-left'));
  mkdirSync(join(root, '.new-young'));
  utimesSync(join(root, '.new-left'), 0, 0);
  const snapshotId = newId();
  await one.add(async (draft) => {
    utimesSync(draft, 0, 0);
    await other.removeLeftovers();
    expect(existsSync(draft)).toBe(true);
    return { ...RECORD, snapshotId };
  });
  expect(readdirSync(root).toSorted()).toEqual(['.new-young', snapshotId].toSorted());
});
