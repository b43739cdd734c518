import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { SimulatedSnapshots } from '../../src/engines/simulated/snapshots.js';

test('a list leaves out what is removed meanwhile', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-snapshots-'));
  try {
    const snapshots = new SimulatedSnapshots(directory, { holds: () => true, onCapture: undefined });
    await snapshots.keep({ orgId: 'an-org', snapshotId: 'kept' });
    // One removal or another falls between the two reads of a list.
    for (let round = 0; round < 100; round += 1) {
      const ids = Array.from({ length: 10 }, (_, number) => `gone-${number}`);
      for (const snapshotId of ids) await snapshots.keep({ orgId: 'an-org', snapshotId });
      const lists = [];
      for (const id of ids) lists.push(snapshots.list(), snapshots.remove(id));
      await Promise.all(lists);
    }
    expect(await snapshots.list()).toEqual([{ orgId: 'an-org', snapshotId: 'kept' }]);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
