import fc from 'fast-check';
import { afterEach, expect, test, vi } from 'vitest';
import { FairSlots } from '../../src/fairness/fair-slots.js';

afterEach(() => void vi.useRealTimers());

const MAX_WAIT_MS = 1_000;
const make = (total: number, each: number, most = 100) =>
  new FairSlots({ total, each, wait: { maxMs: MAX_WAIT_MS, most, refusal: () => new Error('too late') } });

const wasGranted = (turn: true | Promise<void>) =>
  Promise.resolve(turn).then(
    () => true,
    () => false,
  );

/** Lets the callbacks of granted turns run. */
async function settle(): Promise<void> {
  for (let turns = 0; turns < 5; turns += 1) await Promise.resolve();
}

type Step =
  { kind: 'ask'; key: string } | { kind: 'release'; pick: number } | { kind: 'wait'; millis: number };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({ kind: fc.constant('ask' as const), key: fc.constantFrom('a', 'b', 'c', 'd') }),
  },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant('release' as const), pick: fc.nat() }) },
  {
    weight: 1,
    arbitrary: fc.record({ kind: fc.constant('wait' as const), millis: fc.integer({ min: 1, max: 700 }) }),
  },
);

interface Asked {
  key: string;
  at: number;
  order: number;
}

test('slots go to the waiting key with the fewest, none is lost, and none waits while it could run', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.integer({ min: 1, max: 5 }),
      fc.integer({ min: 1, max: 4 }),
      fc.array(step, { maxLength: 80 }),
      async (total, each, steps) => {
        vi.useFakeTimers();
        const slots = make(total, each);
        const holding: Asked[] = [];
        const waiting: Asked[] = [];
        const heldBy = (key: string) => holding.filter((asked) => asked.key === key).length;
        /** `fewest`: the slots of the next key when a slot was released. */
        const model = { now: 0, asked: 0, fewest: Infinity };
        for (const action of [
          ...steps,
          ...Array.from({ length: 100 }, () => ({ kind: 'release', pick: 0 }) as const),
        ]) {
          if (action.kind === 'ask') {
            const asked = { key: action.key, at: model.now, order: (model.asked += 1) };
            const couldRun = holding.length < total && heldBy(asked.key) < each;
            const turn = slots.acquire(asked.key);
            expect(turn === true).toBe(couldRun);
            if (turn === true) holding.push(asked);
            else {
              waiting.push(asked);
              void (async () => {
                const granted = await wasGranted(turn);
                const place = waiting.indexOf(asked);
                expect(place).toBeGreaterThanOrEqual(0);
                waiting.splice(place, 1);
                if (!granted) {
                  expect(model.now - asked.at).toBe(MAX_WAIT_MS);
                  return;
                }
                // First come, first served within a key.
                expect(
                  waiting.some(({ key, order: other }) => key === asked.key && other < asked.order),
                ).toBe(false);
                expect(heldBy(asked.key)).toBe(model.fewest);
                expect(heldBy(asked.key)).toBeLessThan(each);
                holding.push(asked);
              })();
            }
          } else if (action.kind === 'release') {
            if (holding.length === 0) continue;
            const [released] = holding.splice(action.pick % holding.length, 1) as [Asked];
            const possible = waiting.map(({ key }) => heldBy(key)).filter((held) => held < each);
            model.fewest = Math.min(...possible);
            slots.release(released.key);
            await settle();
          } else {
            const until = model.now + action.millis;
            const expiries = waiting
              .map(({ at }) => at + MAX_WAIT_MS)
              .filter((at) => at > model.now && at < until);
            for (const at of new Set([...expiries, until])) {
              const millis = at - model.now;
              model.now = at;
              await vi.advanceTimersByTimeAsync(millis);
            }
          }
          expect(holding.length).toBeLessThanOrEqual(total);
          for (const { key } of waiting) expect(holding.length === total || heldBy(key) === each).toBe(true);
        }
        expect([holding, waiting]).toEqual([[], []]);
        // Every slot is free again, for any key.
        for (let count = 0; count < total; count += 1) expect(slots.acquire(`new ${count}`)).toBe(true);
        for (let count = 0; count < total; count += 1) slots.release(`new ${count}`);
        vi.useRealTimers();
      },
    ),
    { numRuns: 60 },
  );
});

test('a key waits for one turn of each other key, however many requests those have', async () => {
  const slots = new FairSlots({ total: 2, each: 2 });
  const served: string[] = [];
  const run = (key: string) => {
    const turn = slots.acquire(key);
    const begin = () => void served.push(key);
    if (turn === true) begin();
    else void turn.then(begin);
  };
  for (let count = 0; count < 50; count += 1) for (const key of ['a', 'b', 'c']) run(key);
  run('few');
  served.length = 0;
  for (const holder of ['a', 'b']) {
    slots.release(holder);
    await settle();
  }
  for (let turn = 0; turn < 4; turn += 1) {
    slots.release(served[turn]!);
    await settle();
  }
  expect(served.slice(0, 4)).toContain('few');
});

test('callers beyond the limit of a key are refused at once, others not', async () => {
  const slots = make(1, 1, 2);
  expect(slots.acquire('a')).toBe(true);
  const waiting = [slots.acquire('a'), slots.acquire('a')];
  await expect(slots.acquire('a')).rejects.toThrow('too late');
  const other = slots.acquire('b');
  for (const [holder, next] of [
    ['a', waiting[0]],
    ['a', other],
    ['b', waiting[1]],
  ] as const) {
    slots.release(holder);
    await next;
  }
});

/** Work that ends when it is told to, and the order in which it began. */
function manualWork(slots: FairSlots) {
  const begun: string[] = [];
  const ends: (() => void)[] = [];
  const run = (key: string, name: string) =>
    slots.run(key, async () => {
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

test('waiting keys take turns, however much one of them has queued', async () => {
  const { begun, run, endOne } = manualWork(new FairSlots({ total: 1, each: 1 }));
  const all = [
    ...['a1', 'a2', 'a3', 'a4'].map((name) => run('a', name)),
    ...['b1', 'b2'].map((name) => run('b', name)),
    run('c', 'c1'),
  ];
  for (let count = 0; count < all.length; count += 1) await endOne();
  expect(await Promise.all(all)).toEqual(['a1', 'a2', 'a3', 'a4', 'b1', 'b2', 'c1']);
  expect(begun).toEqual(['a1', 'a2', 'b1', 'c1', 'a3', 'b2', 'a4']);
});

test('a key never has more slots than its share, and leaves the rest to others', async () => {
  const { begun, run, endOne } = manualWork(new FairSlots({ total: 2, each: 1 }));
  const all = [run('a', 'a1'), run('a', 'a2'), run('b', 'b1'), run('b', 'b2'), run('c', 'c1')];
  expect(begun).toEqual(['a1', 'b1']);
  for (let count = 0; count < all.length; count += 1) await endOne();
  await Promise.all(all);
  expect(begun).toHaveLength(5);
});

test('work that fails gives its slot to the next', async () => {
  const slots = new FairSlots({ total: 1, each: 1 });
  const failing = slots.run('a', () => Promise.reject(new Error('broken')));
  const next = slots.run('b', () => Promise.resolve('done'));
  await expect(failing).rejects.toThrow('broken');
  expect(await next).toBe('done');
});
