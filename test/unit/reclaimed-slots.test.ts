import { expect, test } from 'vitest';
import {
  ReclaimedSlots,
  type ReclaimedSlotsOptions,
  type SlotHolder,
} from '../../src/fairness/reclaimed-slots.js';
import { until } from '../support/polling.js';

const OPTIONS: ReclaimedSlotsOptions = {
  total: 3,
  each: 2,
  waiting: { total: 4, each: 2 },
  maxWaitMs: 20_000,
  idleMs: 1_000,
};

/** A holder with this idle time, which records whether it was cut off. */
function someone(
  idleMs = 0,
): SlotHolder & { leaving: AbortController; wasCutOff: boolean; reasons: string[] } {
  const leaving = new AbortController();
  const holder = {
    leaving,
    gone: leaving.signal,
    wasCutOff: false,
    reasons: [] as string[],
    idleMs: () => idleMs,
    cutOff: (reason: string) => {
      holder.wasCutOff = true;
      holder.reasons.push(reason);
    },
  };
  return holder;
}

test('the next slot goes to the waiting owner with the fewest slots', async () => {
  const queue = new ReclaimedSlots(OPTIONS);
  const slots = [await queue.acquire('a', someone()), await queue.acquire('a', someone())];
  const other = await queue.acquire('b', someone());
  const order: string[] = [];
  const waiting = ['a', 'b', 'c'].map(async (key) => {
    const leave = await queue.acquire(key, someone());
    order.push(key);
    return leave;
  });
  other!();
  await until(
    () => Promise.resolve(order.length),
    (length) => length > 0,
  );
  expect(order).toEqual(['b']);
  slots[0]!();
  await until(
    () => Promise.resolve(order.length),
    (length) => length > 1,
  );
  expect(order).toEqual(['b', 'c']);
  slots[1]!();
  await Promise.all(waiting);
});

test('the queue cuts off the longest idle holder among those whose slot helps a waiting owner', async () => {
  const queue = new ReclaimedSlots(OPTIONS);
  const [idle, idler, idlest] = [someone(2_000), someone(3_000), someone(4_000)];
  const leave = await queue.acquire('a', idle);
  const leaveToo = await queue.acquire('a', idler);
  await queue.acquire('b', idlest);
  const waiting = queue.acquire('a', someone());
  expect([idle, idler, idlest].map(({ wasCutOff }) => wasCutOff)).toEqual([false, true, false]);
  leaveToo!();
  expect(await waiting).toBeTypeOf('function');
  const next = queue.acquire('c', someone());
  expect([idle, idlest].map(({ wasCutOff }) => wasCutOff)).toEqual([false, true]);
  leave!();
  expect(await next).toBeTypeOf('function');
});

test('a busy holder keeps its slot until the wait of others times out', async () => {
  const queue = new ReclaimedSlots({ ...OPTIONS, maxWaitMs: 50 });
  const busy = [someone(), someone(900)];
  for (const holder of busy) await queue.acquire('a', holder);
  expect(await queue.acquire('a', someone())).toBeUndefined();
  expect(busy.some(({ wasCutOff }) => wasCutOff)).toBe(false);
});

test('the queue is limited in total and for each owner, and a leaving waiter frees its place', async () => {
  const queue = new ReclaimedSlots(OPTIONS);
  const leave = await queue.acquire('a', someone());
  await queue.acquire('a', someone());
  const [leaver, stayer] = [someone(), someone()];
  const left = queue.acquire('a', leaver);
  const stayed = queue.acquire('a', stayer);
  expect(await queue.acquire('a', someone())).toBeUndefined();
  leaver.leaving.abort();
  expect(await left).toBeUndefined();
  const late = queue.acquire('a', someone());
  leave!();
  const leaveToo = await stayed;
  leaveToo!();
  expect(await late).toBeTypeOf('function');
});

test('an owner without a slot gets one of the owner with the most, and of those the one that is idle for longest', async () => {
  const queue = new ReclaimedSlots({ ...OPTIONS, shareAfterMs: 300 });
  const [alone, busy, slower] = [someone(900), someone(10), someone(20)];
  await queue.acquire('b', alone);
  await queue.acquire('a', busy);
  const leave = await queue.acquire('a', slower);
  const waiting = queue.acquire('c', someone());
  expect(slower.reasons).toEqual([]);
  await until(
    () => Promise.resolve(slower.reasons),
    (reasons) => reasons.length > 0,
  );
  leave!();
  expect(await waiting).toBeTypeOf('function');
  expect([alone, busy, slower].map(({ reasons }) => reasons)).toEqual([[], [], ['share']]);
});

test('owners with one slot each keep it', async () => {
  const queue = new ReclaimedSlots({ ...OPTIONS, maxWaitMs: 1_000, shareAfterMs: 100 });
  const holders = ['a', 'b', 'c'].map((key) => ({ key, holder: someone(900) }));
  for (const { key, holder } of holders) await queue.acquire(key, holder);
  expect(await queue.acquire('d', someone())).toBeUndefined();
  expect(holders.some(({ holder }) => holder.wasCutOff)).toBe(false);
});

test('a caller that is refused takes no slot from an idle holder', async () => {
  const queue = new ReclaimedSlots({ ...OPTIONS, total: 2, waiting: { total: 4, each: 0 } });
  const idle = [someone(5_000), someone(5_000)];
  for (const holder of idle) await queue.acquire('a', holder);
  expect(await queue.acquire('b', someone())).toBeUndefined();
  expect(idle.map(({ wasCutOff }) => wasCutOff)).toEqual([false, false]);
});
