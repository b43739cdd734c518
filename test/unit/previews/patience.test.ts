import { expect, test } from 'vitest';
import { isOfOpenPage, isVisit, patienceOf } from '../../../src/previews/wake/patience.js';
import type { PreviewRequest } from '../../../src/previews/types.js';

const request = (headers: Record<string, string> = {}, method = 'GET') =>
  ({ method, headers }) as unknown as PreviewRequest;

test('a request waits as long as it prefers, at most a minute, and with a body or an upgrade half of that', () => {
  expect(patienceOf(request())).toBeUndefined();
  expect(patienceOf(request({ prefer: 'respond-async, wait=5' }))).toBe(5_000);
  expect(patienceOf(request({ prefer: 'wait=0' }))).toBe(0);
  expect(patienceOf(request({ prefer: 'wait="600"' }))).toBe(60_000);
  expect(patienceOf(request({ prefer: 'wait=soon' }))).toBeUndefined();
  expect(patienceOf(request({}, 'DELETE'))).toBe(30_000);
  expect(patienceOf(request({ upgrade: 'websocket' }))).toBe(30_000);
  expect(patienceOf(request({ 'content-length': '3' }))).toBe(30_000);
});

test('a visit is told from a program and from a page that is open already', () => {
  const visit = request({ 'sec-fetch-mode': 'navigate' });
  const fetched = request({ 'sec-fetch-mode': 'cors', accept: 'text/html' });
  const program = request({ accept: '*/*' });
  expect([visit, fetched, program].map(isVisit)).toEqual([true, false, false]);
  expect([visit, fetched, program].map(isOfOpenPage)).toEqual([false, true, false]);
  expect(isVisit(request({ accept: 'text/html,*/*' }))).toBe(true);
});
