import { afterEach, expect, test, vi } from 'vitest';
import type { Context } from '../../src/context.js';
import { CALLS_AT_ONCE, RuntimeCalls, type CallKind } from '../../src/sandboxes/reconcile/runtime-calls.js';
import type { Term } from '../../src/workers/lease.js';

afterEach(() => void vi.useRealTimers());

const term = { valid: true, signal: new AbortController().signal } as Term;

test.each(Object.keys(CALLS_AT_ONCE) as CallKind[])(
  'three organizations do not use up the calls of the kind %s',
  async (kind) => {
    const calls = new RuntimeCalls({ runtime: {} } as Context, () => undefined);
    let end: () => void = () => undefined;
    const ending = new Promise<void>((resolve) => (end = resolve));
    const begun = new Map<string, number>();
    const { each } = CALLS_AT_ONCE[kind];
    const orgs = ['org0', 'org1', 'org2', 'org3'];
    for (const orgId of orgs) {
      for (let index = 0; index <= each; index += 1) {
        calls.begin(term, { orgId, sandboxId: `${orgId} ${index}` }, kind, async () => {
          begun.set(orgId, (begun.get(orgId) ?? 0) + 1);
          return ending;
        });
      }
    }
    expect([...begun.keys()]).toEqual(orgs);
    expect(begun.get('org0')).toBe(each);
    end();
    await calls.close();
    expect(calls.underWay.size).toBe(0);
    calls.begin(term, { orgId: 'org0', sandboxId: 'again' }, kind, () => Promise.resolve());
    expect(calls.underWay.size).toBe(1);
    await calls.close();
  },
);

test('kills on a cluster do not wait for each other', async () => {
  const calls = new RuntimeCalls({ runtime: { placesRuns: true } } as Context, () => undefined);
  let end: () => void = () => undefined;
  const ending = new Promise<void>((resolve) => (end = resolve));
  for (let index = 0; index < 100; index += 1) {
    calls.begin(term, { orgId: 'org0', sandboxId: String(index) }, 'kill', () => ending);
  }
  expect(calls.underWay.size).toBe(100);
  end();
  await calls.close();
});

test('removals that hang take no places of others, and are bounded', async () => {
  vi.useFakeTimers();
  const meters = { runtimeCalled: () => undefined };
  const calls = new RuntimeCalls({ runtime: {}, meters } as unknown as Context, () => undefined);
  let end: () => void = () => undefined;
  const ending = new Promise<void>((resolve) => (end = resolve));
  let begun = 0;
  const begin = (orgId: string, sandboxId: string) =>
    calls.begin(term, { orgId, sandboxId }, 'destroy', async () => {
      begun += 1;
      return ending;
    });
  for (let round = 0; round < 40; round += 1) {
    for (let index = 0; index < 4; index += 1) begin('attacker', `${round} ${index}`);
    vi.advanceTimersByTime(15_000);
  }
  expect(begun).toBe(64);
  begin('other', 'removed at once');
  expect(begun).toBe(65);
  end();
  await calls.close();
  begin('attacker', 'again');
  expect(begun).toBe(66);
  await calls.close();
});
