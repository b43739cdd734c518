import { expect, test } from 'vitest';
import { MIN_GROWTH_BYTES, mostGrown } from '../../src/sandboxes/disk-guard.js';

const MIB = 1024 ** 2;

/** Stores by name, with their organization and their growth in MiB. */
const stopped = (...grown: [name: string, orgId: string, mib: number][]) => {
  const stores = grown.map(([name, orgId, mib]) => {
    const writers = [{ orgId, sandboxId: name }];
    return [name, { bytes: (1_000 + mib) * MIB, writers }] as const;
  });
  const before = new Map(grown.map(([name]) => [name, 1_000 * MIB]));
  return mostGrown(new Map(stores), before)?.name;
};

test('a full disk stops a sandbox of the organization whose sandboxes together have grown most', () => {
  expect(stopped(['b', 'B', 40], ['a1', 'A', 15], ['a2', 'A', 16], ['a3', 'A', 15])).toBe('a2');
  expect(stopped(['b', 'B', 50], ['a1', 'A', 15], ['a2', 'A', 16], ['a3', 'A', 15])).toBe('b');
  // Small steps of many sandboxes count together, and nothing that another sandbox freed makes up for them.
  expect(stopped(['b', 'B', 15], ['a1', 'A', 9], ['a2', 'A', 10], ['a3', 'A', -500])).toBe('a2');
});

test('a full disk stops no sandbox of an organization that hardly grows', () => {
  const less = MIN_GROWTH_BYTES / MIB - 1;
  expect(stopped(['b', 'B', less], ['a', 'A', less])).toBeUndefined();
});
