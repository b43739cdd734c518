import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Rotation } from '../../src/fairness/rotation.js';

test('owners take turns, and the items of each keep their order', () => {
  const rotation = new Rotation<string>();
  for (const name of ['a1', 'a2', 'a3', 'b1', 'c1', 'c2']) rotation.add(name[0]!, name);
  expect(rotation.peek()).toEqual(['a', 'a1']);
  const order = Array.from({ length: 7 }, () => rotation.take());
  expect(order).toEqual(['a1', 'b1', 'c1', 'a2', 'c2', 'a3', undefined]);
});

test('between two items of an owner, each other owner that waits all the time gives one', () => {
  const owner = fc.constantFrom('a', 'b', 'c', 'd');
  const action = fc.oneof(owner, fc.constant(undefined));
  fc.assert(
    fc.property(fc.array(action, { maxLength: 200 }), (actions) => {
      const rotation = new Rotation<{ owner: string; order: number }>();
      const waiting: { owner: string; order: number }[] = [];
      /** The owners that were served since each waiting owner was. */
      const passed = new Map<string, string[]>();
      let order = 0;
      for (const added of actions) {
        if (added !== undefined) {
          const item = { owner: added, order: (order += 1) };
          if (!passed.has(added)) passed.set(added, []);
          waiting.push(item);
          rotation.add(added, item);
        } else {
          const item = rotation.take();
          expect(item === undefined).toBe(waiting.length === 0);
          if (!item) continue;
          expect(item).toBe(waiting.find((one) => one.owner === item.owner));
          waiting.splice(waiting.indexOf(item), 1);
          passed.delete(item.owner);
          for (const served of passed.values()) {
            expect(served).not.toContain(item.owner);
            served.push(item.owner);
          }
          if (waiting.some((one) => one.owner === item.owner)) passed.set(item.owner, []);
        }
        expect(rotation.size).toBe(waiting.length);
      }
    }),
  );
});

test('an item that leaves is not taken, and an item waits once', () => {
  const rotation = new Rotation<string>();
  rotation.add('a', 'a1');
  rotation.add('a', 'a2');
  expect(() => rotation.add('a', 'a1')).toThrow('waits already');
  expect([rotation.delete('a', 'a1'), rotation.delete('a', 'a1'), rotation.delete('b', 'a2')]).toEqual([
    true,
    false,
    false,
  ]);
  expect([rotation.sizeOf('a'), rotation.take(), rotation.take()]).toEqual([1, 'a2', undefined]);
});
