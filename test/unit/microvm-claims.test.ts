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

  const other = { file: '1:3', isReadonly: false };
  const begin = (uses: ImageUses, sandboxId: string, continues = false) =>
    uses.begin(sandboxId, { continues });

  test('have one writer, or any number of readers', () => {
    for (const [first, second, isFree] of [
      [written, written, false],
      [written, read, false],
      [read, written, false],
      [read, read, true],
      [written, other, true],
    ] as const) {
      const uses = new ImageUses();
      expect(begin(uses, 'a').reserve(first)).toBeUndefined();
      const b = begin(uses, 'b');
      expect(b.reserve(second)).toBe(isFree ? undefined : 'a');
      expect(b.own).toEqual(isFree ? [second] : []);
      expect(begin(new ImageUses(), 'b').reserve(second)).toBeUndefined();
    }
  });

  test('are those of one sandbox too', () => {
    const a = begin(new ImageUses(), 'a');
    a.reserve(written);
    expect(a.reserve(read)).toBe('a');
    expect(a.reserve({ file: '1:3', isReadonly: true })).toBeUndefined();
    expect(a.own).toEqual([written, { file: '1:3', isReadonly: true }]);
  });

  test('are held by a start that no list has, and by machines of an earlier process', async () => {
    const uses = new ImageUses();
    begin(uses, 'a').reserve(written);
    uses.claims.keep(new Map([['b', [{ file: '1:4', isReadonly: true }]]]), await later());
    const c = begin(uses, 'c');
    expect(c.reserve(written)).toBe('a');
    expect(c.reserve({ file: '1:4', isReadonly: false })).toBe('b');
    uses.claims.settle('a');
    uses.claims.keep(new Map(), await later());
    expect(c.reserve(written)).toBeUndefined();
    expect(c.reserve({ file: '1:4', isReadonly: false })).toBeUndefined();
  });

  test('stay those of a pause while its resume claims them again, one after another', async () => {
    const uses = new ImageUses();
    uses.claims.keep(new Map([['a', [written, other]]]), await later());
    const resume = begin(uses, 'a', true);
    uses.claims.keep(new Map(), await later());
    expect(begin(uses, 'b').reserve(written)).toBe('a');
    expect(resume.reserve(written)).toBeUndefined();
    expect(begin(uses, 'b').reserve(other)).toBe('a');
    expect(resume.reserve(read)).toBe('a');
    expect(resume.reserve(other)).toBeUndefined();
    expect(resume.own).toEqual([written, other]);
  });

  test('are free for a start that does not continue the run that had them', async () => {
    const uses = new ImageUses();
    uses.claims.keep(new Map([['a', [written, other]]]), await later());
    expect(begin(uses, 'a').reserve(written)).toBeUndefined();
    expect(begin(uses, 'b').reserve(other)).toBeUndefined();
  });
});
