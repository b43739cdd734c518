import { expect, test } from 'vitest';
import {
  entriesOf,
  plainText,
  secretsOf,
  withPlainText,
  withSecrets,
} from '../../console/src/sandboxes/env-entries.js';

const SECRET = { key: 'TOKEN', value: 's', secret: true };

test('a change of the plain variables keeps the secret ones, and the other way round', () => {
  const env = [{ key: 'A', value: '1' }, SECRET, { key: 'B', value: '2', secret: false }];
  expect(plainText(env)).toBe('A=1, B=2');
  expect(withPlainText(env, 'C=3')).toEqual([{ key: 'C', value: '3' }, SECRET]);
  expect(withPlainText(env, '')).toEqual([SECRET]);
  expect(withSecrets(env, [])).toEqual([env[0], env[2]]);
  expect(secretsOf(withSecrets(env, [SECRET, { ...SECRET, key: 'OTHER' }]))).toHaveLength(2);
  expect([withPlainText(undefined, ''), withSecrets([SECRET], [])]).toEqual([undefined, undefined]);
});

test('a map of variables is a list, and no other JSON breaks the form', () => {
  expect(entriesOf({ A: '1', B: 2 })).toEqual([
    { key: 'A', value: '1' },
    { key: 'B', value: '2' },
  ]);
  for (const env of [undefined, null, 'A=1', 7, [null, 'A', { value: '1' }]])
    expect(entriesOf(env)).toEqual([]);
});
