import { describe, expect, test } from 'vitest';
import { ImageUses } from '../../src/engines/microvm/disks/image-uses.js';
import { MonitorUsers } from '../../src/engines/microvm/users.js';

const listedAt = () => performance.now();
/** A list that begins after everything so far. */
async function later(): Promise<number> {
  await new Promise((resolve) => setTimeout(resolve, 5));
  return listedAt();
}

describe('the users of monitors', () => {
  test('are no other sandbox’s before the list tells of the start', async () => {
    const users = new MonitorUsers('installation');
    const first = users.take('a');
    users.claims.keep(new Map(), await later());
    expect(users.take('b')).not.toBe(first);
  });

  test('are free again after a start that failed, and after a run that no list has seen', async () => {
    const users = new MonitorUsers('installation');
    const first = users.take('a');
    users.claims.settle('a');
    users.claims.keep(new Map(), await later());
    expect(users.take('b')).toBe(first);
  });

  test('stay with a sandbox that became ready while a list was read', async () => {
    const users = new MonitorUsers('installation');
    const first = users.take('a');
    const began = await later();
    await later();
    users.claims.settle('a');
    users.claims.keep(new Map(), began);
    expect(users.take('b')).not.toBe(first);
  });

  test('are not those of the previous run, which an old list still has', async () => {
    const users = new MonitorUsers('installation');
    const old = users.take('a');
    users.claims.settle('a');
    const began = await later();
    users.claims.release('a');
    expect(users.take('b')).toBe(old);
    const next = users.take('a');
    users.claims.keep(new Map([['a', old]]), began);
    users.claims.keep(new Map(), await later());
    expect([old, next]).not.toContain(users.take('c'));
  });

  test('are those of the machines that an earlier process has started', async () => {
    const first = new MonitorUsers('installation').take('a');
    const users = new MonitorUsers('installation');
    users.claims.keep(new Map([['a', first]]), listedAt());
    expect(users.take('b')).not.toBe(first);
    users.claims.keep(new Map(), await later());
    expect(users.take('c')).toBe(first);
  });
});

describe('the disk images of virtual machines', () => {
  const written = { file: '1:2', isReadonly: false };
  const read = { file: '1:2', isReadonly: true };

  test('have one writer, or any number of readers', () => {
    for (const [first, second, isFree] of [
      [written, written, false],
      [written, read, false],
      [read, written, false],
      [read, read, true],
      [written, { file: '1:3', isReadonly: false }, true],
    ] as const) {
      const uses = new ImageUses();
      expect(uses.reserve('a', first)).toBeUndefined();
      expect(uses.reserve('b', second)).toBe(isFree ? undefined : 'a');
      expect(uses.of('b')).toEqual(isFree ? [second] : []);
      expect(new ImageUses().reserve('b', second)).toBeUndefined();
    }
  });

  test('are those of one sandbox too', () => {
    const uses = new ImageUses();
    uses.reserve('a', written);
    expect(uses.reserve('a', read)).toBe('a');
    expect(uses.reserve('a', { file: '1:3', isReadonly: true })).toBeUndefined();
    expect(uses.of('a')).toEqual([written, { file: '1:3', isReadonly: true }]);
  });

  test('are held by a start that no list has, and by machines of an earlier process', async () => {
    const uses = new ImageUses();
    uses.reserve('a', written);
    uses.claims.keep(new Map([['b', [{ file: '1:4', isReadonly: true }]]]), await later());
    expect(uses.reserve('c', written)).toBe('a');
    expect(uses.reserve('c', { file: '1:4', isReadonly: false })).toBe('b');
    uses.claims.settle('a');
    uses.claims.keep(new Map(), await later());
    expect(uses.reserve('c', written)).toBeUndefined();
    expect(uses.reserve('c', { file: '1:4', isReadonly: false })).toBeUndefined();
  });
});
