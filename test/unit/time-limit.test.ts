import { once } from 'node:events';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { expect, test } from 'vitest';
import { limitTime } from '../../src/lib/time-limit.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

test('a time limit ends the work with its reason, also after a garbage collection', async () => {
  const reason = new Error('too late');
  const { signal } = limitTime(20, new AbortController().signal, reason);
  const ended = once(signal, 'abort');
  collectGarbage();
  await ended;
  expect(signal.reason).toBe(reason);
});

test('a time limit ends with the other signal, also with one that has ended before', () => {
  const stop = new AbortController();
  const { signal, release } = limitTime(60_000, stop.signal);
  expect(signal.aborted).toBe(false);
  stop.abort('stopped');
  expect([signal.reason, limitTime(60_000, stop.signal).signal.reason]).toEqual(['stopped', 'stopped']);
  release();
});

test('a released time limit ends no more', () => {
  const stop = new AbortController();
  const { signal, release } = limitTime(1, stop.signal);
  release();
  stop.abort();
  expect(signal.aborted).toBe(false);
});
