import { expect, test } from 'vitest';
import { DeniedLists } from '../../../src/engine/network-record/denied-lists.js';
import { refusalOf } from '../../../src/engine/network-record/refusal.js';
import type { Denial } from '../../../src/gateway/protocol.js';

const refused = (name: string, more: Partial<Denial> = {}) =>
  refusalOf({
    sandbox: 'a',
    at: 1_000,
    kind: 'name',
    protocol: 'dns',
    name,
    rule: 'default',
    reason: 'denied',
    ...more,
  });
const namesOf = (lists: DeniedLists, sandbox: string) =>
  lists.list(sandbox, { limit: 1_000 }).map(({ name, count }) => `${name} ${count}`);

test('equal refusals are one entry, which moves to the front', () => {
  const lists = new DeniedLists();
  lists.add('a', refused('one'));
  lists.add('a', refused('two', { at: 2_000 }));
  lists.add('a', refused('one', { at: 3_000, count: 4 }));
  lists.add('b', refused('three'));
  expect(namesOf(lists, 'a')).toEqual(['one 5', 'two 1']);
  expect(lists.list('a', { limit: 1 })[0]).toMatchObject({ firstAt: 1_000, lastAt: 3_000 });
  const [first] = lists.list('a', { limit: 1 });
  expect(lists.list('a', { limit: 9, before: first!.position }).map(({ name }) => name)).toEqual(['two']);
});

test('a flood drops the oldest entries of its own sandbox', () => {
  const lists = new DeniedLists({ mostOfSandbox: 5, most: 12 });
  for (const name of ['x', 'y']) lists.add('quiet', refused(name));
  for (let index = 0; index < 100; index += 1) {
    for (const sandbox of ['loud', 'louder', 'loudest']) lists.add(sandbox, refused(`${index}`));
  }
  expect(namesOf(lists, 'quiet')).toEqual(['y 1', 'x 1']);
  const kept = ['loud', 'louder', 'loudest'].map((sandbox) => namesOf(lists, sandbox));
  expect(kept.flat().length).toBeLessThanOrEqual(10);
  expect(kept[2]![0]).toBe('99 1');
  lists.forget('loudest');
  expect(namesOf(lists, 'loudest')).toEqual([]);
});

test('texts of a guest are cut, and times that no database has are replaced', () => {
  const entry = refused('x'.repeat(400), { at: Number.NaN, reason: 'a\0b' });
  expect([entry.name!.length, entry.reason]).toEqual([300, 'a\uFFFDb']);
  expect(entry.firstAt).toBeGreaterThan(1_000_000_000_000);
});
