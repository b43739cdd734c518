import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import type { Holding } from '../../src/engine/runtime.js';
import type { ReconcileRow } from '../../src/sandboxes/reconcile/queries.js';
import { PassScope } from '../../src/sandboxes/reconcile/scope.js';

const MINUTE = 60_000;
const row = (sandboxId: string, more: Partial<ReconcileRow> = {}): ReconcileRow => ({
  orgId: `org of ${sandboxId}`,
  sandboxId,
  changedAt: 't1',
  startedAt: 't0',
  resumes: false,
  stopReason: null,
  maxDurationSecs: null,
  idleTimeoutSecs: null,
  commandRuns: false,
  wanted: {
    status: 'running',
    removed: false,
    runId: 'r',
    runStarted: true,
    runOpen: true,
    placed: true,
    lacksParts: false,
    keepsMemory: false,
    paused: false,
  },
  ...more,
});
const ids = (scope: PassScope) => [...(scope.next(true) ?? ['all'])];

beforeEach(() => void vi.useFakeTimers({ toFake: ['performance'] }));
afterEach(() => void vi.useRealTimers());

test('visits all at first, after a lost notification and once a minute, and otherwise the changed ones', () => {
  const scope = new PassScope();
  expect(ids(scope)).toEqual(['all']);
  expect(ids(scope)).toEqual([]);
  scope.note(['a', 'b']);
  expect(ids(scope)).toEqual(['a', 'b']);
  scope.note(['a']);
  scope.note(undefined);
  expect(ids(scope)).toEqual(['all']);
  vi.advanceTimersByTime(MINUTE);
  expect(ids(scope)).toEqual(['all']);
});

test('visits all each time when the runtime cannot list some', () => {
  const scope = new PassScope();
  for (let pass = 0; pass < 3; pass += 1) expect(scope.next(false)).toBeUndefined();
});

test('visits a sandbox again until it is settled', () => {
  const scope = new PassScope();
  scope.next(true);
  scope.visited(row('a'), undefined, false);
  scope.visited(row('b'), undefined, true);
  expect(ids(scope)).toEqual(['a']);
  scope.visited(row('a'), undefined, true);
  expect(ids(scope)).toEqual([]);
});

test('leaves a sandbox whose holding was not read to the next pass, once for each change', () => {
  const scope = new PassScope();
  scope.next(true);
  scope.visited(row('a'), undefined, true);
  const none = new Set<string>();
  expect(scope.split(none, [row('a'), row('b')])).toEqual([]);
  expect([scope.hasChanges, ids(scope)]).toEqual([true, ['b']]);
  expect(scope.split(new Set(['b']), [row('a'), row('b')])).toEqual([row('b')]);
  expect(scope.hasChanges).toBe(false);
  expect(scope.split(none, [row('a', { changedAt: 't2' })])).toEqual([]);
  expect(ids(scope)).toEqual(['a']);
});

test('knows the organizations of holdings and of visited sandboxes', () => {
  const scope = new PassScope();
  scope.next(true);
  scope.visited(row('a'), undefined, true);
  const held = new Map([['b', { orgId: 'held' } as Holding]]);
  expect(scope.refsOf(new Set(['a', 'b', 'c']), held)).toEqual([
    { orgId: 'org of a', sandboxId: 'a' },
    { orgId: 'held', sandboxId: 'b' },
  ]);
});

test('keeps those that end at a time or when idle while they run', () => {
  const scope = new PassScope();
  scope.next(true);
  scope.visited(row('a', { maxDurationSecs: 5 }), undefined, true);
  scope.visited(row('b'), undefined, true);
  expect([...scope.timed.keys()]).toEqual(['a']);
  const stopped = { ...row('a').wanted, status: 'stopped' as const };
  scope.visited(row('a', { maxDurationSecs: 5, wanted: stopped }), undefined, true);
  expect([...scope.timed.keys()]).toEqual([]);
});
