import { expect, test } from 'vitest';
import { bytesOfName, textOfName } from '../../src/lib/byte-names.js';

test.each([
  ['grüße 🙂.txt', 'grüße 🙂.txt'],
  [[0xff], String.raw`\xff`],
  [[0x67, 0x72, 0xfc, 0xdf, 0x65], String.raw`gr\xfc\xdfe`],
  [String.raw`\xff`, String.raw`\x5cxff`],
  [String.raw`\x5c`, String.raw`\x5cx5c`],
  // Names of systemd, and other backslashes, stay as they are.
  [String.raw`dev-disk-by\x2duuid`, String.raw`dev-disk-by\x2duuid`],
  [String.raw`a\b\\x`, String.raw`a\b\\x`],
  [String.raw`\XFF\xFF`, String.raw`\XFF\xFF`],
  // The begin of a character, an overlong slash, half of a surrogate pair, and more than U+10FFFF.
  [[0xe2, 0x82], String.raw`\xe2\x82`],
  [[0xc0, 0xaf], String.raw`\xc0\xaf`],
  [[0xed, 0xa0, 0x80], String.raw`\xed\xa0\x80`],
  [[0xf4, 0x90, 0x80, 0x80], String.raw`\xf4\x90\x80\x80`],
])('the name %j is shown as %s', (name, text) => {
  const bytes = Buffer.from(name as string);
  expect(textOfName(bytes)).toBe(text);
  expect(bytesOfName(text)).toEqual(bytes);
});

test('every name has a text of its own, which is valid UTF-8 and leads back to it', () => {
  const parts = [
    ...['\\', 'x', '5', 'c', 'f', 'ü', '🙂', '\\x', 'xff', '\\x5c'].map((part) => Buffer.from(part)),
    ...[0xff, 0x80, 0xc3, 0xe2, 0xf0].map((byte) => Buffer.of(byte)),
  ];
  const [seen, wrong] = [new Map<string, string>(), [] as string[]];
  for (let number = 0; number < 20_000; number += 1) {
    const name: Buffer[] = [];
    for (let rest = number; rest > 0; rest = Math.floor(rest / parts.length)) {
      name.push(parts[rest % parts.length]!);
    }
    const bytes = Buffer.concat(name);
    const text = textOfName(bytes);
    const hex = bytes.toString('hex');
    const leadsBack = text.isWellFormed() && bytesOfName(text).equals(bytes);
    if (!leadsBack || (seen.get(text) ?? hex) !== hex) wrong.push(text);
    seen.set(text, hex);
  }
  expect(wrong).toEqual([]);
});
