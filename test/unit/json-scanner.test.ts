import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ByteList } from '../../src/http/byte-list.js';
import { JsonScanner, MAX_DEPTH, MAX_NUMBER, MAX_VALUES } from '../../src/http/json-scanner.js';
import { anyCharacter } from '../support/any-character.js';

/** Scans the text in chunks of these lengths, over and over. */
function scan(text: string, lengths: readonly number[] = [1_000], byteLists = true): JsonScanner {
  const scanner = new JsonScanner(byteLists);
  const bytes = Buffer.from(text);
  for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
    const length = lengths[turn % lengths.length]!;
    scanner.push(bytes.subarray(at, at + length));
    at += length;
  }
  return scanner;
}

function read(scanner: JsonScanner): unknown {
  return scanner.withLists(JSON.parse(scanner.text));
}

const lengths = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 10 });
const spaces = fc.array(fc.constantFrom('', ' ', '\n\t', '\r '), { minLength: 1 });

test('every JSON text below the limits is kept, however it arrives', () => {
  fc.assert(
    fc.property(fc.json({ maxDepth: 8, stringUnit: anyCharacter }), lengths, (text, chunks) => {
      expect(scan(text, chunks).text).toBe(Buffer.from(text).toString());
    }),
    { numRuns: 300 },
  );
});

test('texts with quotes, escapes and brackets in strings are kept', () => {
  const hostile = fc.string({
    unit: fc.constantFrom('\\', '"', '[', '{', ']', ',', '1', 'ü', '\u0000', ':'),
  });
  fc.assert(
    fc.property(fc.dictionary(hostile, fc.array(hostile)), lengths, (value, chunks) => {
      const text = JSON.stringify(value);
      expect(scan(text, chunks).text).toBe(text);
    }),
    { numRuns: 1_000 },
  );
});

test('long lists of bytes are taken out and put back, with any spaces and chunks', () => {
  const item = fc.integer({ min: 0, max: 255 });
  fc.assert(
    fc.property(
      fc.array(fc.array(item, { minLength: 1_001, maxLength: 1_100 }), { minLength: 1, maxLength: 3 }),
      spaces,
      lengths,
      (lists, gaps, chunks) => {
        const gap = (index: number) => gaps[index % gaps.length]!;
        const textOf = (list: number[]) =>
          `{"a":1,"content"${gap(0)}:${gap(1)}[${list.map((byte, index) => `${gap(index)}${byte}${gap(index + 1)}`).join(',')}],"b":"content"}`;
        const scanner = scan(`[${lists.map(textOf).join(',')}]`, chunks);
        expect(scanner.text.length).toBeLessThan(500);
        expect(read(scanner)).toEqual(
          lists.map((list) => ({ a: 1, content: new ByteList(Buffer.from(list)), b: 'content' })),
        );
      },
    ),
    { numRuns: 50 },
  );
});

const zeros = (count: number) => Array.from({ length: count }, () => 0).join(',');

test.each([
  ['a short one', `{"content":[${zeros(1_000)}]}`],
  ['one below another key', `{"contents":[${zeros(5_000)}]}`],
  ['one below an escaped key', `{"\\u0063ontent":[${zeros(5_000)}]}`],
  ['one with a number beyond a byte', `{"content":[${zeros(5_000)},256]}`],
  ['one with a negative number', `{"content":[${zeros(5_000)},-0]}`],
  ['one with a fraction', `{"content":[${zeros(5_000)},0.0]}`],
  ['one with a text', `{"content":[${zeros(5_000)},"0"]}`],
  ['one with a list', `{"content":[${zeros(5_000)},[1]]}`],
  ['one after the key as a value', `["content",[${zeros(5_000)}]]`],
])('a list that is no long list of bytes stays as it is: %s', (_, text) => {
  expect(scan(text, [7, 64_000]).text).toBe(text);
});

test.each(['[01]', '[1,]', '[,1]', '[1 2]', '[]', '[1,,2]'])(
  'a malformed list stays malformed: %s',
  (list) => {
    const text = `{"content":${list.replace('1', `${zeros(2_000)},1`)}}`;
    expect(scan(text).text).toBe(text);
  },
);

test('lists of bytes count as values where the route takes none', () => {
  expect(() => scan(`{"content":[${zeros(20_000)}]}`, [1_000], false)).toThrow(/more than 10000 values/);
});

test.each([
  ['lists', '['.repeat(MAX_DEPTH + 1), /nested/],
  ['objects', '{"a":'.repeat(MAX_DEPTH + 1), /nested/],
  ['values', `[${zeros(MAX_VALUES + 1)}]`, /values/],
  ['empty lists', `[${'[],'.repeat(MAX_VALUES)}`, /values/],
  ['keys', `{${'"":0,'.repeat(MAX_VALUES)}`, /values/],
  ['values after long lists of bytes', `{"content":[${zeros(5_000)}],"a":[${zeros(MAX_VALUES)}]}`, /values/],
  ['digits', `[${'1'.repeat(MAX_NUMBER + 1)}`, /number/],
])('too many %s are refused while they arrive', (_, text, message) => {
  expect(() => scan(text, [1])).toThrow(message);
});

test.each([
  ['depth', `${'['.repeat(MAX_DEPTH)}${']'.repeat(MAX_DEPTH)}`],
  ['depth of siblings', `[${'[[]],'.repeat(1_000)}[]]`],
  ['values', `[${zeros(MAX_VALUES)}]`],
  ['digits', `[${'1'.repeat(MAX_NUMBER)}]`],
])('the limit of %s itself is allowed', (_, text) => {
  expect(scan(text).text).toBe(text);
});

test('a number that may be rounded is noticed, in every place', () => {
  for (const text of ['[1234567890123456]', '{"content":[1234567890123456]}', '[1.2e12345678901234]']) {
    for (const length of [1, 5, 100]) expect(scan(text, [length]).hasLongNumbers).toBe(true);
  }
  expect(scan('["1234567890123456", 123456789012345, {"content":[255,0]}]').hasLongNumbers).toBe(false);
});
