import { expect, test } from 'vitest';
import type { Context } from '../../src/context.js';
import { UnansweredCalls } from '../../src/engines/docker/unanswered-calls.js';
import type { ReconcileRow } from '../../src/sandboxes/reconcile/queries.js';
import { UnansweredNotices } from '../../src/sandboxes/reconcile/unanswered-notices.js';

const row = { orgId: 'o', sandboxId: 's', wanted: { status: 'starting', removed: false } } as ReconcileRow;

test('a sandbox says which call hangs, each minute once, until the engine answers', async () => {
  let now = 0;
  const calls = new UnansweredCalls(() => now);
  const ctx = { runtime: { unanswered: () => calls.all() }, log: { warn: () => undefined } };
  const notices = new UnansweredNotices(ctx as unknown as Context);
  const words = () => notices.changed([row]).map((notice) => notice.words);
  const timeout = Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' });
  let fail!: (error: Error) => void;
  const start = calls.track('s', 'start', new Promise((_, reject) => (fail = reject)));
  now = 59_999;
  expect(words()).toEqual([]);
  now = 60_000;
  expect(words()).toEqual(['the engine has not answered the start for 60 s']);
  fail(timeout);
  await expect(start).rejects.toThrow();
  let answer!: (value: string) => void;
  const inspection = calls.track('s', 'inspection', new Promise((resolve) => (answer = resolve)));
  expect(words()).toEqual([]);
  now = 121_000;
  expect(words()).toEqual(['the engine has not answered the start for 120 s']);
  answer('it runs');
  await inspection;
  expect(words()).toEqual([null]);
  expect(words()).toEqual([]);
});

test('a refusal is an answer', async () => {
  const calls = new UnansweredCalls();
  const refused = Object.assign(new Error('conflict'), { statusCode: 409 });
  await expect(calls.track('s', 'removal', Promise.reject(refused))).rejects.toThrow();
  expect(calls.all().size).toBe(0);
});

test('a container that is gone is forgotten', async () => {
  const calls = new UnansweredCalls();
  const timeout = Object.assign(new Error('socket hang up'), { code: 'ECONNRESET' });
  await expect(calls.track('s', 'removal', Promise.reject(timeout))).rejects.toThrow();
  calls.keepOnly(new Set(['s']));
  expect([...calls.all().keys()]).toEqual(['s']);
  calls.keepOnly(new Set());
  expect(calls.all().size).toBe(0);
});
