import { expect, test } from 'vitest';
import { checkPattern, patternsOf } from '../../src/registry-credentials/pattern.js';

test.each([
  ['ghcr.io', 'ghcr.io'],
  ['GHCR.io/acme', 'ghcr.io/acme'],
  ['localhost/app', 'localhost/app'],
  ['registry.example:5000/team/app', 'registry.example:5000/team/app'],
  ['docker.io', 'docker.io'],
  ['index.docker.io/acme', 'docker.io/acme'],
  ['docker.io/library', 'docker.io/library'],
])('the pattern %s is stored as %s', (text, stored) => {
  expect(checkPattern(text)).toBe(stored);
});

test.each([
  '',
  'acme',
  'acme/app',
  'ghcr.io/',
  'ghcr.io//acme',
  'ghcr.io/acme/',
  'ghcr.io/acme:1',
  'ghcr.io/*',
  'ghcr.io/ACME',
  'https://ghcr.io',
  'ghcr.io/acme@sha256:0',
  'user@ghcr.io',
  'ghcr.io:port',
  'ghcr.io/a b',
])('the pattern "%s" is refused, with the field', (text) => {
  expect(() => checkPattern(text)).toThrow(/such as ghcr\.io/);
});

test('an image matches its registry and every beginning of its repository by whole parts', () => {
  expect(patternsOf('ghcr.io/acme/team/app:1')).toEqual([
    'ghcr.io/acme/team/app',
    'ghcr.io/acme/team',
    'ghcr.io/acme',
    'ghcr.io',
  ]);
  expect(patternsOf('python')).toEqual(['docker.io/library/python', 'docker.io/library', 'docker.io']);
  expect(patternsOf('not an image')).toEqual([]);
  expect(patternsOf('ghcr.io/acme2/app')).not.toContain('ghcr.io/acme');
});
