import { expect, test } from 'vitest';
import { makeMatcher } from '../../src/templates/dockerfile/patterns.js';

/** From the tests of Go's `path/filepath`. */
test.each<[pattern: string, path: string, isMatch: boolean]>([
  ['abc', 'abc', true],
  ['*', 'abc', true],
  ['*c', 'abc', true],
  ['a*', 'a', true],
  ['a*', 'ab/c', false],
  ['a*/b', 'abc/b', true],
  ['a*/b', 'a/c/b', false],
  ['a*b*c*d*e*/f', 'axbxcxdxe/f', true],
  ['a*b*c*d*e*/f', 'axbxcxdxexxx/fff', false],
  ['a*b?c*x', 'abxbbxdbxebxczzx', true],
  ['a*b?c*x', 'abxbbxdbxebxczzy', false],
  ['ab[c]', 'abc', true],
  ['ab[b-d]', 'abc', true],
  ['ab[e-g]', 'abc', false],
  ['ab[^c]', 'abc', false],
  ['ab[^e-g]', 'abc', true],
  [String.raw`a\*b`, 'a*b', true],
  [String.raw`a\*b`, 'ab', false],
  ['a?b', 'a☺b', true],
  ['a[^a]b', 'a☺b', true],
  ['a???b', 'a☺b', false],
  ['[a-ζ]*', 'α', true],
  ['*[a-ζ]', 'A', false],
  ['a?b', 'a/b', false],
  ['a*b', 'a/b', false],
  ['*x', 'xxx', true],
])('%s and %s: %s', (pattern, path, isMatch) => {
  expect(makeMatcher(pattern)(path)).toBe(isMatch);
});

test('a pattern with many stars takes no exponential time', () => {
  expect(makeMatcher(`${'*a'.repeat(40)}b`)('a'.repeat(250))).toBe(false);
});
