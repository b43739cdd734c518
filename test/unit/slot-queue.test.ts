import fc from 'fast-check';
import { afterEach, expect, test, vi } from 'vitest';
import { SlotQueue } from '../../src/fairness/slot-queue.js';
import type { Release } from '../../src/fairness/slots.js';

afterEach(() => void vi.useRealTimers());

const MAX_WAIT_MS = 1_000;

/** Lets the callbacks of granted slots run. */
async function settle(): Promise<void> {
  for (let ticks = 0; ticks < 10; ticks += 1) await Promise.resolve();
}

type Step =
  | { kind: 'ask'; owner: string }
  | { kind: 'release'; pick: number }
  | { kind: 'leave'; pick: number }
  | { kind: 'wait'; millis: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ kind: fc.constant('ask' as const), owner: fc.constantFrom('a', 'b', 'c', 'd') }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('release' as const), pick: fc.nat() }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('leave' as const), pick: fc.nat() }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('wait' as const), millis: fc.integer({ min: 1, max: 700 }) }),
  },
);

interface Asked {
  owner: string;
  at: number;
  order: number;
  release?: Release;
  leaving: AbortController;
}

test('slots go to the waiting owner with the fewest, none is lost, and none waits while it could run', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 1, max: 4 }),
      fc.array(step, { maxLength: 80 }),
      async (total, each, steps) => {
        vi.useFakeTimers();
        const slots = new SlotQueue({ total, each, maxWaitMs: MAX_WAIT_MS });
        const holding: Asked[] = [];
        const waiting: Asked[] = [];
        const heldBy = (owner: string) => holding.filter((asked) => asked.owner === owner).length;
        /** `fewest`: the slots of the next owner when a slot was released. */
        const model = { now: 0, asked: 0, fewest: Infinity };
        const waitFor = async (asked: Asked) => {
          const release = await slots.acquire(asked.owner, asked.leaving.signal);
          const place = waiting.indexOf(asked);
          expect(place).toBeGreaterThanOrEqual(0);
          waiting.splice(place, 1);
          if (!release) {
            expect(asked.leaving.signal.aborted || model.now - asked.at === MAX_WAIT_MS).toBe(true);
            return;
          }
          // First come, first served for one owner.
          expect(waiting.some(({ owner, order }) => owner === asked.owner && order < asked.order)).toBe(
            false,
          );
          expect(heldBy(asked.owner)).toBe(model.fewest);
          holding.push(Object.assign(asked, { release }));
        };
        const all: Step[] = [
          ...steps,
          ...Array.from({ length: 100 }, () => ({ kind: 'release', pick: 0 }) as const),
        ];
        for (const action of all) {
          if (action.kind === 'ask') {
            const { owner } = action;
            const couldRun = holding.length < total && heldBy(owner) < each;
            const asked: Asked = {
              owner,
              at: model.now,
              order: (model.asked += 1),
              leaving: new AbortController(),
            };
            const release = slots.tryAcquire(owner);
            expect(release !== undefined).toBe(couldRun);
            if (release) holding.push(Object.assign(asked, { release }));
            else {
              waiting.push(asked);
              void waitFor(asked);
            }
          } else if (action.kind === 'release') {
            if (holding.length === 0) continue;
            const [released] = holding.splice(action.pick % holding.length, 1) as [Asked];
            const possible = waiting.map(({ owner }) => heldBy(owner)).filter((held) => held < each);
            model.fewest = Math.min(...possible);
            released.release!();
            released.release!();
            await settle();
          } else if (action.kind === 'leave') {
            waiting[action.pick % Math.max(waiting.length, 1)]?.leaving.abort();
            await settle();
          } else {
            const until = model.now + action.millis;
            const expiries = waiting
              .map(({ at }) => at + MAX_WAIT_MS)
              .filter((at) => at > model.now && at < until);
            for (const at of [...new Set([...expiries, until])].toSorted((a, b) => a - b)) {
              const millis = at - model.now;
              model.now = at;
              await vi.advanceTimersByTimeAsync(millis);
            }
          }
          expect(holding.length).toBeLessThanOrEqual(total);
          expect(slots.waits).toBe(waiting.length);
          for (const { owner } of waiting) {
            expect(holding.length === total || heldBy(owner) === each).toBe(true);
          }
        }
        expect([holding, waiting]).toEqual([[], []]);
        // Every slot is free again, for any owner.
        const again = Array.from({ length: total }, (_, index) => slots.tryAcquire(`new ${index}`));
        expect(again.every((release) => release !== undefined)).toBe(true);
        vi.useRealTimers();
      },
    ),
    { numRuns: 60 },
  );
});

test('a newcomer waits for one release of each other owner, however many callers those have', async () => {
  for (const owners of [1, 2, 5]) {
    const slots = new SlotQueue({ total: 2, each: 2 });
    const served: { owner: string; release: Release }[] = [];
    const ask = async (owner: string) => {
      const release = await slots.acquire(owner);
      served.push({ owner, release: release! });
    };
    for (let index = 0; index < 1_000 * owners; index += 1) void ask(`hog ${index % owners}`);
    await settle();
    void ask('newcomer');
    let releases = 0;
    while (!served.some(({ owner }) => owner === 'newcomer')) {
      served.shift()!.release();
      releases += 1;
      await settle();
    }
    expect(releases).toBeLessThanOrEqual(owners + 1);
  }
});

test('callers beyond the limits of waiting ones are refused at once, others not', async () => {
  const slots = new SlotQueue({ total: 1, each: 1, waiting: { total: 3, each: 2 } });
  let release = slots.tryAcquire('a');
  const waiting = [slots.acquire('a'), slots.acquire('a')];
  expect(await slots.acquire('a')).toBeUndefined();
  const other = slots.acquire('b');
  expect(await slots.acquire('c')).toBeUndefined();
  for (const next of [waiting[0], other, waiting[1]]) {
    release!();
    release = await next;
    expect(release).toBeTypeOf('function');
  }
});

test('a signal that was aborted before gets no slot', async () => {
  const slots = new SlotQueue({ total: 1, each: 1 });
  expect(await slots.acquire('a', AbortSignal.abort())).toBeUndefined();
  expect(slots.tryAcquire('a')).toBeTypeOf('function');
});

/** Work that ends when it is told to, and the order in which it began. */
function manualWork(slots: SlotQueue) {
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const run = (owner: string, name: string) =>
    slots.run(owner, async () => {
      begun.push(name);
      await new Promise<void>((resolve) => ends.push(resolve));
      return name;
    });
  const endOne = async () => {
    ends.shift()!();
    await new Promise((resolve) => setImmediate(resolve));
  };
  return { begun, run, endOne };
}

test('waiting owners take turns, however much one of them has queued', async () => {
  const { begun, run, endOne } = manualWork(new SlotQueue({ total: 1, each: 1 }));
  const all = [
    ...['a1', 'a2', 'a3', 'a4'].map((name) => run('a', name)),
    ...['b1', 'b2'].map((name) => run('b', name)),
    run('c', 'c1'),
  ];
  for (let count = 0; count < all.length; count += 1) await endOne();
  expect(await Promise.all(all)).toEqual(['a1', 'a2', 'a3', 'a4', 'b1', 'b2', 'c1']);
  expect(begun).toEqual(['a1', 'a2', 'b1', 'c1', 'a3', 'b2', 'a4']);
});

test('an owner never has more slots than its share, and leaves the others to others', async () => {
  const { begun, run, endOne } = manualWork(new SlotQueue({ total: 2, each: 1 }));
  const all = [run('a', 'a1'), run('a', 'a2'), run('b', 'b1'), run('b', 'b2'), run('c', 'c1')];
  expect(begun).toEqual(['a1', 'b1']);
  for (let count = 0; count < all.length; count += 1) await endOne();
  await Promise.all(all);
  expect(begun).toHaveLength(5);
});

test('work that fails gives its slot to the next', async () => {
  const slots = new SlotQueue({ total: 1, each: 1 });
  const failing = slots.run('a', () => Promise.reject(new Error('broken')));
  const next = slots.run('b', () => Promise.resolve('done'));
  await expect(failing).rejects.toThrow('broken');
  expect(await next).toBe('done');
});
