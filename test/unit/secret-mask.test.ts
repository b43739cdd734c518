import fc from 'fast-check';
import { expect, test } from 'vitest';
import { SecretMask } from '../../src/secrets/mask.js';

const masked = (values: string[], pieces: string[]): string => {
  const stream = new SecretMask(values).stream();
  return Buffer.concat([...pieces.map((piece) => stream.push(Buffer.from(piece))), stream.end()]).toString();
};

test.each<[values: string[], pieces: string[], shown: string]>([
  [['hunter2'], ['password hunter2!'], 'password ***!'],
  [['hunter2'], ['hun', 'ter', '2hunter2'], '******'],
  [['hunter2'], ['hun', 'gry'], 'hungry'],
  [['abcd', 'abcdef'], ['abcd', 'ef', 'abcdxx'], '******xx'],
  [['abcd', 'cdxx'], ['abcd', 'cdx', 'y'], '***cdxy'],
  [['aaaa'], ['aaa', 'aaaa', 'a'], '******'],
  [['line one\nline two'], ['line one\r\nline', ' two\n'], '***\r\n***\n'],
  [['a', ''], ['a tale'], 'a tale'],
  [['geheimÜ'], ['geheimÜ'], '***'],
])('of %j in %j nothing is left', (values, pieces, shown) => {
  expect(masked(values, pieces)).toBe(shown);
});

test('a cut at any place changes nothing', () => {
  const letters = fc.string({ unit: fc.constantFrom('a', 'b'), maxLength: 40 });
  const values = fc.array(fc.string({ unit: fc.constantFrom('a', 'b'), minLength: 4, maxLength: 7 }), {
    minLength: 1,
    maxLength: 3,
  });
  fc.assert(
    fc.property(values, letters, fc.array(fc.nat(40)), (secrets, text, cuts) => {
      const ends = [...cuts.filter((cut) => cut <= text.length), text.length].toSorted((a, b) => a - b);
      const pieces = ends.map((end, index) => text.slice(ends[index - 1] ?? 0, end));
      const shown = masked(secrets, pieces);
      expect(shown).toBe(masked(secrets, [text]));
      for (const secret of secrets) expect(shown).not.toContain(secret);
    }),
  );
});
