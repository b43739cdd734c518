import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Bindings } from '../../src/gateway/bindings.js';

const MOST = 16_384;
const MOST_OF_NAME = 1_024;

function addressOf(position: number): string {
  return `10.${position >> 16}.${(position >> 8) & 255}.${position & 255}`;
}

it('binds as a list of names, addresses and ends does', () => {
  const name = fc.constantFrom('a.example', 'b.example', 'c.example');
  const address = fc.integer({ min: 0, max: 5 }).map(addressOf);
  const step = fc.oneof(
    fc.record({ name, addresses: fc.array(address), ttl: fc.integer({ min: 0, max: 90_000 }) }),
    fc.record({ passes: fc.integer({ min: 1, max: 100_000_000 }) }),
  );
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
      let now = 0;
      const bindings = new Bindings(() => now);
      const model: { name: string; address: string; end: number }[] = [];
      for (const each of steps) {
        if ('passes' in each) now += each.passes;
        else {
          bindings.bind(each.name, each.addresses, each.ttl);
          const end = now + Math.min(86_400, Math.max(1, each.ttl)) * 1_000;
          for (const bound of each.addresses) model.push({ name: each.name, address: bound, end });
        }
        for (let position = 0; position <= 5; position += 1) {
          const at = addressOf(position);
          const live = model.filter((known) => known.address === at && known.end > now);
          const names = new Set(live.map((known) => known.name));
          expect(new Set(bindings.namesOf(at))).toEqual(names);
          for (const known of ['a.example', 'b.example', 'c.example'])
            expect(bindings.has(known, at)).toBe(names.has(known));
        }
      }
    }),
  );
});

it('lets the binding that ends first give way, of a name and of a sandbox', () => {
  let now = 0;
  const bindings = new Bindings(() => now);
  for (let position = 0; position < MOST_OF_NAME; position += 1)
    bindings.bind('many.example', [addressOf(position)], 2_000 - position);
  bindings.bind('many.example', [addressOf(60_000)], 60);
  expect(bindings.size).toBe(MOST_OF_NAME);
  expect(bindings.has('many.example', addressOf(MOST_OF_NAME - 1))).toBe(false);
  expect(bindings.has('many.example', addressOf(0))).toBe(true);
  expect(bindings.has('many.example', addressOf(60_000))).toBe(true);

  for (let position = MOST_OF_NAME; position < MOST; position += 1)
    bindings.bind(`n${position}.example`, [addressOf(position)], 10_000 + position);
  expect(bindings.size).toBe(MOST);
  bindings.bind('one-more.example', [addressOf(1)], 30);
  // It ended first of all.
  expect(bindings.has('many.example', addressOf(60_000))).toBe(false);
  expect(bindings.has('one-more.example', addressOf(1))).toBe(true);
  expect(bindings.size).toBe(MOST);

  now = 2_001_000;
  bindings.bind('after.example', [addressOf(1)], 1);
  expect(bindings.size).toBe(MOST - MOST_OF_NAME + 1);
});

it('keeps a bounded number of names for an address', () => {
  const bindings = new Bindings(() => 0);
  for (let position = 0; position < 300; position += 1)
    bindings.bind(`n${position}.example`, ['10.0.0.1'], 100 + position);
  expect(bindings.namesOf('10.0.0.1').length).toBe(256);
  expect(bindings.has('n43.example', '10.0.0.1')).toBe(false);
  expect(bindings.has('n44.example', '10.0.0.1')).toBe(true);
  expect(bindings.size).toBe(256);
});

it('keeps its size when one name is renewed without end', () => {
  let now = 0;
  const bindings = new Bindings(() => now);
  for (let renewal = 0; renewal < 100_000; renewal += 1) {
    now += 1;
    bindings.bind('a.example', ['10.0.0.1'], 3_600);
  }
  expect(bindings.size).toBe(1);
  expect(bindings.namesOf('10.0.0.1')).toEqual(['a.example']);
});
