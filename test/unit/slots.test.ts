import fc from 'fast-check';
import { expect, test } from 'vitest';
import { Slots, type Release } from '../../src/fairness/slots.js';

test('owners hold no more than their limits, and a refusal changes nothing', () => {
  const owner = fc.constantFrom('a', 'b', 'c');
  const step = fc.oneof(
    fc.record({ owner, amount: fc.integer({ min: 1, max: 6 }) }),
    fc.record({ release: fc.nat() }),
  );
  fc.assert(
    fc.property(
      fc.record({ total: fc.integer({ min: 1, max: 20 }), each: fc.integer({ min: 1, max: 12 }) }),
      fc.integer({ min: 0, max: 3 }),
      fc.array(step, { maxLength: 60 }),
      ({ total, each }, base, steps) => {
        const slots = new Slots({ total, each, base });
        const held: { owner: string; amount: number; release: Release }[] = [];
        const sum = (of?: string) =>
          held.reduce((all, one) => all + (of === undefined || one.owner === of ? one.amount : 0), 0);
        for (const action of steps) {
          if ('release' in action) {
            const [one] = held.splice(action.release % Math.max(held.length, 1), 1);
            one?.release();
            one?.release();
          } else {
            const own = sum(action.owner) + action.amount;
            const fits = own <= each && (sum() + action.amount <= total || own <= base);
            const release = slots.acquire(action.owner, action.amount);
            expect(release !== undefined).toBe(fits);
            if (release) held.push({ ...action, release });
          }
          expect(slots.free).toBe(total - sum());
          for (const name of ['a', 'b', 'c']) expect(slots.heldBy(name)).toBe(sum(name));
        }
      },
    ),
  );
});

test('an amount that is held already counts also beyond a limit, until it is given back', () => {
  const slots = new Slots({ total: 10, each: 8, base: 2 });
  slots.add('a', 9);
  expect(slots.isOver('a')).toBe(true);
  slots.add('b', 2);
  expect(slots.isOver('b')).toBe(false);
  slots.add('b', 1);
  expect(slots.isOver('b')).toBe(true);
  slots.add('a', -9);
  expect(slots.isOver('b')).toBe(false);
  expect(() => slots.add('a', -1)).toThrow('given back more');
});
