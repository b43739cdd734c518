import { execFileSync } from 'node:child_process';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import { expandWord, splitWords } from '../../src/templates/dockerfile/words.js';

const VALUES: Record<string, string> = { A: 'one', EMPTY: '', PATH: '/bin' };
const lookup = (name: string) => VALUES[name];
const expand = (word: string) => expandWord(word, '\\', lookup);

test('replaces variables, with defaults and alternatives', () => {
  expect(expand('$A/${A}x$')).toBe('one/onex$');
  expect(expand('${NONE}-${NONE:-d}-${EMPTY:-d}-${EMPTY-d}')).toBe('-d-d-');
  expect(expand('${A:+set}${EMPTY:+set}${EMPTY+set}${NONE+set}')).toBe('setset');
  expect(expand('${NONE:-${A}/"q"}')).toBe('one/q');
});

test('removes quotes and escapes', () => {
  expect(expand(String.raw`'$A'"$A \"x\" \n"\$A\ .`)).toBe(String.raw`$Aone "x" \n$A .`);
  expect(expandWord('`$A\\x', '`', lookup)).toBe('$A\\x');
});

test.each(['${A', "'a", '"a', '${1}', '${A:?no}', '${A:-'])('refuses %s', (word) => {
  expect(() => expand(word)).toThrow();
});

test('splits at spaces outside of quotes, and keeps the quotes', () => {
  expect(splitWords(`${String.raw`a="b c" 'd  e'  f\ g`}\th`, '\\')).toEqual([
    'a="b c"',
    "'d  e'",
    String.raw`f\ g`,
    'h',
  ]);
});

test('words mean what a shell reads', () => {
  const piece = fc.constantFrom(
    'x',
    ' ',
    '$A',
    '${A}',
    '${EMPTY:-d}',
    '${NONE-e}',
    '${A:+f}',
    '"',
    "'",
    '\\',
  );
  const seed = Number(process.env['SANDKEEP_TEST_FUZZ_SEED'] ?? Date.now());
  const texts = fc.array(piece, { minLength: 1, maxLength: 12 }).map((pieces) => pieces.join(''));
  const script = ['set -f', "A=one EMPTY='' IFS=''"];
  const words: string[] = [];
  const expected: string[] = [];
  for (const text of fc.sample(texts, { numRuns: 1_000, seed })) {
    const [word, ...more] = splitWords(text, '\\');
    // At the end, an escape has nothing to escape.
    if (word !== text || more.length > 0 || text.endsWith('\\')) continue;
    try {
      expected.push(expand(word));
    } catch {
      continue;
    }
    words.push(word);
    script.push(`printf '%s\\n' ${word}`);
  }
  expect(words.length).toBeGreaterThan(100);
  const output = execFileSync('sh', ['-c', script.join('\n')], { encoding: 'utf8' });
  const read = output.split('\n').slice(0, -1);
  const hint = `repeat with SANDKEEP_TEST_FUZZ_SEED=${seed}`;
  expect(
    words.map((word, index) => [word, expected[index]]),
    hint,
  ).toEqual(words.map((word, index) => [word, read[index]]));
});
