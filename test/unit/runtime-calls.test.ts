import { expect, test } from 'vitest';
import type { Context } from '../../src/context.js';
import { CALLS_AT_ONCE, RuntimeCalls, type CallKind } from '../../src/sandboxes/reconcile/runtime-calls.js';
import type { Term } from '../../src/workers/lease.js';

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
