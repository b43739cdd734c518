import fc from 'fast-check';
import { setImmediate as nextIteration } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { Admission, Refusal } from '../../src/fairness/share-entry.js';
import { AT_ONCE, Shares } from '../../src/fairness/shares.js';
import { ACTIVE_MS, Pace } from '../../src/fairness/pace.js';
import { until } from '../support/polling.js';

const OPTIONS = {
  alone: 100,
  // Never alone, and without rests.
  pace: { isShared: () => true, charge: () => 0, waitOf: () => 0 },
  running: { total: 32, each: 24 },
  waiting: { total: 60, each: 20 },
  maxWaitMs: 1_000,
  maxHoldMs: 500,
};
const ENDLESS = { ...OPTIONS, maxWaitMs: Infinity, maxHoldMs: Infinity };
const MOST_COST = 20;

interface Work {
  key: string;
  cost: number;
  estimate: number;
  at: number;
}

/** Runs the work on a virtual clock: each request holds its admission for as long as it costs. */
function simulate(work: readonly Work[], options = ENDLESS) {
  let now = 0;
  const shares = new Shares({ ...options, now: () => now });
  const begun: (Work & { begunAt: number })[] = [];
  const refused: (Work & { refusal: Refusal })[] = [];
  const waiting = new Set<Work>();
  const running = new Map<Admission, { work: Work; until: number }>();
  const arrivals = work.toSorted((a, b) => a.at - b.at);

  /** Written without the queue: nobody waits who fits, whichever request is the next. */
  function expectBusy(): void {
    const costOf = (of: Iterable<Work>) => [...of].reduce((sum, { estimate }) => sum + estimate, 0);
    const inProgress = [...running.values()].map((entry) => entry.work);
    const free = options.running.total - costOf(inProgress);
    const isHeldBack = (key: string) =>
      costOf(inProgress.filter((other) => other.key === key)) + MOST_COST > options.running.each;
    const keys = new Set([...waiting].map(({ key }) => key));
    const idleWaits = [...keys].filter(
      (key) => inProgress.length === 0 || (free >= MOST_COST && !isHeldBack(key)),
    );
    expect(idleWaits).toEqual([]);
    expect(shares.counts).toMatchObject({ running: inProgress.length, waiting: waiting.size });
    expect(waiting.size).toBeLessThanOrEqual(options.waiting.total);
  }

  while (arrivals.length > 0 || running.size > 0) {
    const ends = [...running].toSorted(([, a], [, b]) => a.until - b.until)[0];
    const [next] = arrivals;
    if (next && (!ends || next.at <= ends[1].until)) {
      now = next.at;
      arrivals.shift();
      waiting.add(next);
      shares.enter(next.key, next.estimate, (admission, refusal) => {
        waiting.delete(next);
        if (refusal) refused.push({ ...next, refusal });
        else {
          running.set(admission, { work: next, until: now + next.cost });
          begun.push({ ...next, begunAt: now });
        }
      });
    } else {
      const [admission, { work: done, until }] = ends!;
      now = until;
      running.delete(admission);
      admission.release(done.cost);
    }
    expectBusy();
  }
  expect(waiting.size).toBe(0);
  expect(shares.counts).toEqual({ running: 0, waiting: 0, flows: 0 });
  return { begun, refused };
}

const cost = fc.integer({ min: 1, max: MOST_COST });

test('every request begins, no capacity is idle, and nothing is left over', () => {
  const work = fc.record({ key: fc.constantFrom('a', 'b', 'c', 'd'), cost, estimate: cost, at: fc.nat(200) });
  fc.assert(
    fc.property(fc.array(work, { maxLength: 60 }), (all) => {
      const { begun, refused } = simulate(all, { ...ENDLESS, waiting: { total: 60, each: 60 } });
      expect(begun).toHaveLength(all.length);
      expect(refused).toEqual([]);
      // The order of one key stays.
      for (const key of ['a', 'b', 'c', 'd']) {
        const times = begun.filter((one) => one.key === key).map(({ at }) => at);
        expect(times).toEqual(times.toSorted((a, b) => a - b));
      }
    }),
  );
});

test('owners that ask all the time get equal costs, whatever they cost and however low the estimates are', () => {
  const { total } = OPTIONS.running;
  // With larger ones the limit of the key itself would hold it back.
  const most = total / 4;
  const profile = fc.record({
    cost: fc.integer({ min: 1, max: most }),
    divisor: fc.integer({ min: 1, max: most }),
    clients: fc.integer({ min: 60, max: 180 }),
  });
  fc.assert(
    fc.property(fc.array(profile, { minLength: 2, maxLength: 5 }), (profiles) => {
      const work = profiles.flatMap(({ cost: each, divisor: by, clients }, index) =>
        Array.from({ length: clients }, () => ({
          key: `${index}`,
          cost: each,
          estimate: Math.ceil(each / by),
          at: 0,
        })),
      );
      const many = { total: 1_000, each: 1_000 };
      const { begun } = simulate(work, { ...ENDLESS, running: { total, each: total }, waiting: many });
      const used = new Map(profiles.map((_, index) => [`${index}`, 0]));
      const left = new Map(profiles.map(({ clients }, index) => [`${index}`, clients]));
      for (const one of begun) {
        used.set(one.key, used.get(one.key)! + one.cost);
        left.set(one.key, left.get(one.key)! - 1);
        if ([...left.values()].some((count) => count === 0)) break;
        // The bound of SFQ(D) for two keys: D + 1 times the sum of their greatest costs.
        const bound = (total + 1) * 2 * most;
        expect(Math.max(...used.values()) - Math.min(...used.values())).toBeLessThanOrEqual(bound);
      }
    }),
    { numRuns: 30 },
  );
});

test('an owner that asks for little begins after a handful of requests of one that asks for much', () => {
  const many = Array.from({ length: 500 }, () => ({ key: 'a', cost: 18, estimate: 18, at: 0 }));
  const few = Array.from({ length: 20 }, (_, index) => ({
    key: 'b',
    cost: 1,
    estimate: 1,
    at: 100 + index * 40,
  }));
  const { begun } = simulate([...many, ...few], { ...ENDLESS, waiting: { total: 1_000, each: 500 } });
  for (const one of begun.filter(({ key }) => key === 'b')) {
    const between = begun.filter(
      ({ key, begunAt }) => key === 'a' && begunAt > one.at && begunAt < one.begunAt,
    );
    expect(between.length).toBeLessThanOrEqual(1);
  }
});

test('an owner uses more while no other owner asks, and less from the first request of another', () => {
  let now = 0;
  const pace = new Pace({ share: 1, aheadMs: 1_000 });
  const shares = new Shares({ ...OPTIONS, pace, waiting: { total: 60, each: 30 }, now: () => now });
  const enter = (key: string) => shares.enter(key, 4, () => undefined);
  const running = () => {
    const entered = Array.from({ length: 30 }, () => enter('a'));
    const { running: count, waiting } = shares.counts;
    for (const entry of entered.filter(({ isWaiting }) => isWaiting)) entry.release();
    for (const entry of entered) entry.release();
    return count + waiting === 30 ? count : undefined;
  };
  pace.see('a', now);
  expect(running()).toBe(25);
  pace.see('b', now);
  expect(running()).toBe(6);
  now = ACTIVE_MS - 1;
  expect(running()).toBe(6);
  now = ACTIVE_MS;
  expect(running()).toBe(25);
});

test('an owner that begins to ask does not wait for the requests that another began while it was alone', () => {
  const pace = new Pace({ share: 1, aheadMs: 0 });
  const shares = new Shares({ ...OPTIONS, pace });
  const enter = (key: string) => shares.enter(key, 4, () => undefined);
  pace.see('a');
  const alone = Array.from({ length: 25 }, () => enter('a'));
  expect(alone.filter(({ isWaiting }) => isWaiting)).toEqual([]);
  pace.see('b');
  // The first key now has its own limit of 24 in progress, of a total of 32.
  const newcomer = Array.from({ length: 3 }, () => enter('b').isWaiting);
  expect(newcomer).toEqual([false, false, true]);
  expect(enter('a').isWaiting).toBe(true);
});

test('an owner that is alone and holds all it may leaves room for an owner that does not count as active', () => {
  const pace = new Pace({ share: 1, aheadMs: 0 });
  const shares = new Shares({ ...OPTIONS, pace });
  pace.see('a');
  const entered = Array.from({ length: 10 }, () => shares.enter('a', 20, () => undefined));
  expect(entered.filter(({ isWaiting }) => isWaiting)).toHaveLength(5);
  expect(shares.enter('probe', 1, () => undefined).isWaiting).toBe(false);
});

test('an owner that has used up its share rests, and then goes on by itself, while another owner begins at once', async () => {
  const pace = new Pace({ share: 0.1, aheadMs: 20 });
  const shares = new Shares({ ...OPTIONS, pace });
  const told: string[] = [];
  const enter = (key: string) => shares.enter(key, 20, () => told.push(key));
  const seeBoth = () => ['a', 'b'].forEach((key) => pace.see(key));
  seeBoth();
  const begunAt = performance.now();
  const first = enter('a');
  await until(
    async () => performance.now() - begunAt,
    (passed) => passed > 60,
  );
  // A busy machine may take longer than an owner counts as active.
  seeBoth();
  // It is charged its time, at least 60 ms: 50 units may take 100. So it rests for half a second or more.
  first.release(50);
  const releasedAt = performance.now();
  const second = enter('a');
  enter('b').release();
  expect(told).toEqual(['a', 'b']);
  await until(
    async () => second.isWaiting,
    (isWaiting) => !isWaiting,
  );
  expect(told).toEqual(['a', 'b', 'a']);
  expect(performance.now() - releasedAt).toBeGreaterThan(25);
});

test('requests that wait for others make their owner rest no longer than their work is worth', () => {
  let now = 0;
  const pace = new Pace({ share: 0.5, aheadMs: 0 });
  const shares = new Shares({ ...OPTIONS, pace, now: () => now });
  for (const key of ['a', 'b']) pace.see(key, now);
  const slow = shares.enter('a', 2, () => undefined);
  now = 1_000;
  // Its time counts for its turns: 50 units.
  slow.release(2 + 50, 2);
  // Two units are 4 ms of work.
  expect(pace.waitOf('a', now)).toBeCloseTo(4);
});

test('a request begins whose rest ends while it is looked at', async () => {
  let looks = 0;
  // Each look is later than the one before: the rest is over at the third.
  const waitOf = () => {
    looks += 1;
    return Math.max(0, 3 - looks);
  };
  for (const before of [0, 1, 2]) {
    looks = before;
    const shares = new Shares({ ...OPTIONS, pace: { ...OPTIONS.pace, waitOf } });
    const entry = shares.enter('a', 20, () => undefined);
    const isWaiting = await until(
      async () => entry.isWaiting,
      (waits) => !waits,
    );
    expect(isWaiting).toBe(false);
  }
});

test('an owner that rests begins at once when no other owner is active any more', () => {
  let now = 0;
  const pace = new Pace({ share: 0.001, aheadMs: 0 });
  const shares = new Shares({ ...OPTIONS, pace, now: () => now });
  for (const key of ['a', 'b']) pace.see(key, now);
  const first = shares.enter('a', 20, () => undefined);
  now = 20;
  first.release();
  const second = shares.enter('a', 20, () => undefined);
  expect(second.isWaiting).toBe(true);
  now = ACTIVE_MS;
  shares.sweep();
  expect(second.isWaiting).toBe(false);
});

test('an owner beyond its queue is refused, and beyond that of all the longest queue loses its oldest', () => {
  const shares = new Shares(OPTIONS);
  const told: string[] = [];
  const enter = (key: string) =>
    shares.enter(key, 24, (_, refusal) => told.push(refusal === undefined ? key : `${key} ${refusal}`));
  enter('a');
  expect(told).toEqual(['a']);
  for (let count = 0; count < 21; count += 1) enter('a');
  expect(told).toEqual(['a', 'a backlog']);
  for (const key of ['b', 'c', 'd']) for (let count = 0; count < 15; count += 1) enter(key);
  expect(shares.counts.waiting).toBe(60);
  expect(told.slice(2)).toEqual(Array<string>(5).fill('a full'));
});

test('an owner whose requests are held for long gets no more than its share', () => {
  const [second, unit] = [1_000, 20];
  let now = 0;
  const limits = { ...ENDLESS, running: { total: 12, each: 6 }, maxHoldMs: 5 * second };
  const shares = new Shares({ ...limits, now: () => now });
  const used = new Map<string, number>();
  const due: { at: number; act: () => void }[] = [];
  const after = (millis: number, act: () => void) => due.push({ at: now + millis, act });
  const ask = (key: string, estimate: number, millis: number, over = () => undefined as void) => {
    shares.enter(key, estimate, (admission, refusal) => {
      if (refusal !== undefined) return;
      after(millis, () => {
        const measured = 1 + millis / unit;
        used.set(key, (used.get(key) ?? 0) + measured);
        admission.release(measured);
        over();
      });
    });
  };
  const askAgain = (key: string) => ask(key, 2, unit, () => askAgain(key));
  for (let client = 0; client < 10; client += 1) for (const key of ['b', 'c']) askAgain(key);
  // Each of these comes when the one before has just stopped counting, so that none waits.
  const hold = () => {
    ask('a', 6, 60 * second);
    after(6 * second, hold);
  };
  hold();
  const sweep = () => {
    shares.sweep();
    after(second / 2, sweep);
  };
  sweep();
  while (now < 600 * second) {
    const next = due.reduce((first, one) => (one.at < first.at ? one : first));
    due.splice(due.indexOf(next), 1);
    now = next.at;
    next.act();
  }
  const inProgress = (10 * (60 * second)) / unit;
  expect(used.get('a')).toBeLessThan(used.get('b')! + inProgress);
  expect(used.get('b')! / used.get('c')!).toBeCloseTo(1, 1);
  // It is not starved either.
  expect(used.get('a')).toBeGreaterThan(used.get('b')! / 2);
});

test('an owner whose own limit kept it waiting saves up 100 units at most, and then shares again', () => {
  const options = { ...ENDLESS, running: { total: 8, each: 6 }, waiting: { total: 5_000, each: 2_000 } };
  const shares = new Shares(options);
  const begun: { owner: string; admission: Admission }[] = [];
  const ask = (owner: string, count: number) => {
    for (let index = 0; index < count; index += 1) {
      shares.enter(owner, 1, (admission) => void begun.push({ owner, admission }));
    }
  };
  ask('held', 1_000);
  const held = begun.splice(0);
  expect(held).toHaveLength(6);
  // Another owner is served meanwhile.
  ask('served', 2_000);
  for (let count = 0; count < 1_500; count += 1) begun.shift()!.admission.release(1);
  for (const { admission } of held) admission.release(1);
  const before = { held: 0, served: 0 };
  while (before.held + before.served < 400) {
    const { owner, admission } = begun.shift()!;
    before[owner as keyof typeof before] += 1;
    admission.release(1);
  }
  expect(before.held).toBeGreaterThan(200);
  expect(before.held).toBeLessThanOrEqual(270);
});

test('requests that leave, wait or hold too long free their places', () => {
  let now = 0;
  const shares = new Shares({ ...OPTIONS, now: () => now });
  const told: string[] = [];
  const enter = (name: string) =>
    shares.enter('a', 24, (_, refusal) => told.push(`${name} ${refusal ?? 'begins'}`));
  const first = enter('first');
  const second = enter('second');
  enter('third');
  second.release();
  expect(shares.counts).toMatchObject({ running: 1, waiting: 1 });
  now = 600;
  shares.sweep();
  expect(told).toEqual(['first begins', 'third begins']);
  enter('fourth');
  enter('fifth');
  first.release(1);
  first.release(1);
  now = 1_100;
  shares.sweep();
  expect(told.slice(2)).toEqual(['fourth begins']);
  now = 1_600;
  shares.sweep();
  expect(told.slice(3)).toEqual(['fifth late']);
  expect(shares.counts).toMatchObject({ running: 0, waiting: 0 });
});

test('thousands of waiting requests that end as soon as they begin all begin, a few in each iteration', async () => {
  const shares = new Shares({ ...OPTIONS, waiting: { total: 20_001, each: 20_000 } });
  const first = shares.enter('a', 24, () => undefined);
  const second = shares.enter('b', 24, () => undefined);
  let begun = 0;
  for (let count = 0; count < 20_000; count += 1) {
    shares.enter('c', 20, (admission) => {
      begun += 1;
      admission.release(1);
    });
  }
  first.release();
  second.release();
  expect(await mostOfTurn(() => begun, 20_000)).toBeLessThanOrEqual(AT_ONCE);
  expect(shares.counts).toEqual({ running: 0, waiting: 0, flows: 0 });
});

test('thousands of requests that have waited too long are refused, a few in each iteration', async () => {
  let [now, refused] = [0, 0];
  const shares = new Shares({
    ...OPTIONS,
    running: { total: 1, each: 1 },
    waiting: { total: 4_000, each: 500 },
    now: () => now,
  });
  shares.enter('busy', 1, () => undefined);
  for (let count = 0; count < 4_000; count += 1) {
    shares.enter(`${count % 8}`, 1, (_, refusal) => (refused += refusal === 'late' ? 1 : 0));
  }
  now = 1_000;
  const sweep = () => {
    if (shares.sweep()) setImmediate(sweep);
  };
  sweep();
  expect(await mostOfTurn(() => refused, 3_999)).toBeLessThanOrEqual(AT_ONCE);
});

/** The largest step between two turns of the event loop until the count is reached. */
async function mostOfTurn(count: () => number, whole: number): Promise<number> {
  let [before, most] = [0, 0];
  while (before < whole) {
    most = Math.max(most, count() - before);
    before = count();
    await nextIteration();
  }
  return most;
}

test('a request that ends after it no longer counted leaves the later ones of its owner in place', () => {
  let now = 0;
  const shares = new Shares({ ...OPTIONS, now: () => now });
  const enter = (key: string, cost: number) => shares.enter(key, cost, () => undefined);
  const slow = enter('a', 1);
  now = 600;
  shares.sweep();
  enter('b', 1).release();
  for (const key of ['b', 'b']) enter(key, 1);
  enter('a', 13);
  slow.release();
  enter('a', 13);
  expect(shares.counts).toMatchObject({ running: 3, waiting: 1 });
});

test('a request that never ends keeps no other owner in memory', () => {
  let now = 0;
  const shares = new Shares({ ...OPTIONS, now: () => now });
  shares.enter('endless', 1, () => undefined);
  now = 600;
  shares.sweep();
  for (let count = 0; count < 100; count += 1) shares.enter(`idle ${count}`, 1, () => undefined).release(2);
  expect(shares.counts).toEqual({ running: 0, waiting: 0, flows: 1 });
});

test('owners that are idle are forgotten while others are busy', () => {
  const shares = new Shares(OPTIONS);
  enterAndRelease('idle');
  const busy = shares.enter('busy', 1, () => undefined);
  for (let count = 0; count < 100; count += 1) enterAndRelease(`idle ${count}`);
  for (let count = 0; count < 10; count += 1) enterAndRelease('busy');
  shares.sweep();
  expect(shares.counts.flows).toBe(1);
  busy.release();
  expect(shares.counts.flows).toBe(0);

  function enterAndRelease(key: string): void {
    shares.enter(key, 1, () => undefined).release(2);
  }
});
