import { describe, expect, test } from 'vitest';
import { readText, withEnds } from '../../console/src/lib/file-text.js';

const read = (text: string | number[]) =>
  readText(typeof text === 'string' ? new TextEncoder().encode(text) : Uint8Array.from(text));

describe('a file as the text of a field', () => {
  test.each(['', 'one line', 'one\ntwo\n', 'one\r\ntwo\r\n', '\uFEFFmarked\n', 'ünïcode ✓\n'])(
    '%j is the same file after it went through a field',
    (content) => {
      const file = read(content);
      if (!file.isText) throw new Error('it is a text');
      expect(file.text).not.toContain('\r');
      expect(withEnds(file.text, file.ends)).toBe(content);
    },
  );

  test.each<[string, string | number[]]>([
    ['mixed line ends', 'one\r\ntwo\n'],
    ['a CR alone', 'one\rtwo\n'],
    ['a NUL', 'a\0b'],
    ['bytes that are not UTF-8', [0x66, 0xff, 0x66]],
  ])('%s are no text', (_, content) => {
    expect(read(content)).toEqual({ isText: false });
  });
});
