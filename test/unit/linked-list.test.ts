import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Linked, LinkedList } from '../../src/lib/linked-list.js';

class Named extends Linked {
  constructor(readonly name: number) {
    super();
  }
}

test('a list has what a set of the same additions and deletions has, in the same order', () => {
  const change = fc.record({ name: fc.nat(8), isAdded: fc.boolean() });
  fc.assert(
    fc.property(fc.array(change), (changes) => {
      const items = Array.from({ length: 9 }, (_, name) => new Named(name));
      const [list, set] = [new LinkedList<Named>(), new Set<Named>()];
      for (const { name, isAdded } of changes) {
        const item = items[name]!;
        if (isAdded && !set.has(item)) {
          list.add(item);
          set.add(item);
        } else if (!isAdded) expect(list.delete(item)).toBe(set.delete(item));
        expect(list.size).toBe(set.size);
        expect(list.first).toBe([...set][0]);
        expect([...list]).toEqual([...set]);
      }
      // A deleted item refers to no other.
      for (const item of set) list.delete(item);
      expect(items.every(({ previous, next }) => previous === undefined && next === undefined)).toBe(true);
    }),
  );
});

test('the current item of an iteration may be deleted', () => {
  const list = new LinkedList<Named>();
  for (const name of [1, 2, 3]) list.add(new Named(name));
  const seen: number[] = [];
  for (const item of list) {
    seen.push(item.name);
    if (item.name !== 2) list.delete(item);
  }
  expect(seen).toEqual([1, 2, 3]);
  expect(list.first!.name).toBe(2);
  expect(list.size).toBe(1);
});
