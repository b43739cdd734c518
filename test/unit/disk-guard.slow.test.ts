import { expect, onTestFinished, test, vi } from 'vitest';
import { MIN_GROWTH_BYTES, mostGrown } from '../../src/sandboxes/full-disk/growth.js';
import { measureAll, SURVEY } from '../../src/sandboxes/full-disk/survey.js';

const MIB = 1024 ** 2;
const DISK = 1;
const UNKNOWN = undefined;

type Grown = [name: string, orgId: string, mib: number | undefined, sizeMib?: number];

/** Stores with their organization and their growth in MiB, and by how much less is free on their disk. */
const found = (lostMib: number, ...grown: Grown[]) => {
  const stores = grown.map(([name, orgId, mib, sizeMib]) => ({
    name,
    orgId,
    disk: DISK,
    before: mib === UNKNOWN ? undefined : 1_000 * MIB,
    bytes: mib === UNKNOWN ? sizeMib && sizeMib * MIB : (1_000 + mib) * MIB,
  }));
  return mostGrown(stores, new Map([[DISK, lostMib * MIB]]));
};
const stopped = (...grown: Grown[]) => found(0, ...grown)?.name;

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

test('a store of unknown size counts by the loss of room that no other store explains', () => {
  expect(found(300, ['b', 'B', 40], ['a', 'A', UNKNOWN])).toMatchObject({ name: 'a', growth: 260 * MIB });
  expect(found(50, ['b', 'B', 40], ['a', 'A', UNKNOWN])?.name).toBe('b');
  expect(found(-100, ['b', 'B', 1], ['a', 'A', UNKNOWN])).toBeUndefined();
  // Room that a store gave back was lost to others.
  expect(found(0, ['b', 'B', -100], ['a', 'A', UNKNOWN])).toMatchObject({ name: 'a', growth: 100 * MIB });
});

test('unknown stores of one organization do not count the same loss twice', () => {
  expect(found(60, ['b', 'B', 40], ['a1', 'A', UNKNOWN], ['a2', 'A', UNKNOWN])?.name).toBe('b');
});

test('a store whose earlier size is unknown has grown by no more than it has', () => {
  expect(found(300, ['small', 'B', UNKNOWN, 1], ['a', 'A', UNKNOWN])?.name).toBe('a');
  expect(found(0, ['large', 'B', UNKNOWN, 50_000])).toBeUndefined();
});

test('all stores are measured by one deadline, and those that never answer make no other unknown', async () => {
  const endless = (name: string, orgId: string) => ({
    name,
    orgId,
    measure: () => new Promise<number>(() => undefined),
  });
  const quick = (name: string, orgId: string) => ({ name, orgId, measure: () => Promise.resolve(7) });
  const broken = { name: 'a', orgId: 'A', measure: () => Promise.reject(new Error('unreadable')) };
  const attackers = Array.from({ length: 3 * SURVEY.atOnce }, (_, n) => endless(`a${n}`, `A${n}`));
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  onTestFinished(() => void vi.useRealTimers());
  let sizes: Map<string, number> | undefined;
  void measureAll([broken, ...attackers, quick('b1', 'B'), quick('b2', 'B')]).then((all) => (sizes = all));
  await vi.advanceTimersByTimeAsync(SURVEY.timeoutMs + 1);
  expect([...sizes!]).toEqual([
    ['b1', 7],
    ['b2', 7],
  ]);
});

test('a store that needs more than the first slice is measured after the others', async () => {
  const slow = {
    name: 'a',
    orgId: 'A',
    measure: async () => new Promise<number>((resolve) => setTimeout(() => resolve(9), SURVEY.sliceMs * 1.5)),
  };
  expect([...(await measureAll([slow]))]).toEqual([['a', 9]]);
});

test('organizations take turns in the measurement', async () => {
  const order: string[] = [];
  const store = (orgId: string, n: number) => ({
    name: `${orgId}${n}`,
    orgId,
    measure: () => Promise.resolve(order.push(orgId)),
  });
  const many = Array.from({ length: 50 }, (_, n) => store('A', n));
  await measureAll([...many, store('B', 0), store('C', 0)]);
  expect(order.slice(0, 3).toSorted()).toEqual(['A', 'B', 'C']);
});
