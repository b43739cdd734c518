import { expect, test } from 'vitest';
import type { Activity } from '../../src/engine/runtime.js';
import { SAMPLING, UseSampler } from '../../src/engine/use/use-sampler.js';
import type { Subject } from '../../src/engine/use/use.js';

const START = 1_700_000_000_000;

function subjectOf(sandboxId: string, more: Partial<Subject> = {}): Subject {
  const ids = { orgId: 'o', org: 'acme', sandboxId, runId: `${sandboxId}-1` };
  return { ...ids, startedAt: START, intervalMs: 1_000, ...more };
}

/** A sampler with a clock of its own, of an engine whose sandboxes use half a CPU. */
function makeSampler() {
  const calls: string[][] = [];
  const state = {
    now: START,
    walks: 0,
    walked: undefined as number | undefined,
    broken: false,
    answer: undefined as Promise<void> | undefined,
  };
  const activity = async (ids: readonly string[]) => {
    calls.push([...ids]);
    if (state.broken) throw new Error('the engine is away');
    await state.answer;
    const use: Activity = { cpuMicros: (state.now - START) * 500, sentBytes: state.now - START };
    return Promise.resolve(new Map(ids.map((id) => [id, use])));
  };
  const diskUse = async () => {
    state.walks += 1;
    return Promise.resolve(state.walked);
  };
  const sampler = new UseSampler({ activity, diskUse }, () => state.now);
  return { sampler, state, calls };
}

test('takes a point every half minute, and forgets those of an hour ago', async () => {
  const { sampler, state, calls } = makeSampler();
  for (let second = 0; second <= 2 * 3_600; second += 1) {
    state.now = START + second * 1_000;
    sampler.keep([subjectOf('a')]);
    await sampler.pass();
  }
  const points = sampler.history('a');
  expect(points.length).toBe(120);
  expect(points.at(-1)!.at - points[0]!.at).toBe(119 * SAMPLING.pointMs);
  expect(new Set(points.map(({ cpuPercent }) => cpuPercent))).toEqual(new Set([50]));
  expect(points.at(-1)).toMatchObject({ at: state.now, memoryBytes: null, sentBytes: 7_200_000 });
  expect(calls.length).toBeLessThan(250);
});

test('asks the engine at most once an interval, however many callers ask', async () => {
  const { sampler, state, calls } = makeSampler();
  const subject = subjectOf('a', { intervalMs: 5_000 });
  await Promise.all(Array.from({ length: 50 }, async () => sampler.sample(subject)));
  state.now += 4_999;
  await sampler.sample(subject);
  expect(calls).toEqual([['a']]);
  state.now += 1;
  expect(await sampler.sample(subject)).toMatchObject({ at: START + 5_000, cpuPercent: 50 });
  expect(calls.length).toBe(2);
});

test('takes one sample when a pass and a caller ask at once', async () => {
  const { sampler, state, calls } = makeSampler();
  const subject = subjectOf('a', { intervalMs: 5_000 });
  sampler.keep([subject]);
  let answer = () => {};
  state.answer = new Promise((resolve) => (answer = resolve));
  const pass = sampler.pass();
  state.answer = undefined;
  const sampled = await sampler.sample(subject);
  state.now += 4_999;
  answer();
  await pass;
  expect(calls).toEqual([['a'], ['a']]);
  expect(await sampler.sample(subject)).toBe(sampled);
});

test('takes at most a batch a pass, the longest overdue first, and spreads the points of many sandboxes', async () => {
  const { sampler, state, calls } = makeSampler();
  const many = Array.from({ length: SAMPLING.mostTracked + 5 }, (_, index) => subjectOf(`s${index}`));
  sampler.keep(many);
  expect(sampler.pointMs).toBe(60_000);
  for (let second = 0; second < 60; second += 1) {
    state.now += 1_000;
    await sampler.pass();
  }
  expect(Math.max(...calls.map(({ length }) => length))).toBe(SAMPLING.batch);
  const counts = many
    .slice(0, SAMPLING.mostTracked)
    .map(({ sandboxId }) => sampler.history(sandboxId).length);
  expect(new Set(counts)).toEqual(new Set([1]));
  // The ones beyond the limit have no samples. Nothing grows with them.
  expect(await sampler.sample(many.at(-1)!)).toBeUndefined();
});

test('a failing engine is asked again after the pause, and the latest sample stays', async () => {
  const { sampler, state, calls } = makeSampler();
  sampler.keep([subjectOf('a')]);
  await sampler.pass();
  state.broken = true;
  state.now += SAMPLING.pointMs;
  await expect(sampler.pass()).rejects.toThrow('away');
  await sampler.pass();
  expect([calls.length, sampler.history('a').length]).toEqual([2, 1]);
  state.broken = false;
  state.now += SAMPLING.pointMs;
  await sampler.pass();
  expect(sampler.history('a')).toHaveLength(2);
});

test('a new run begins at zero, and a clock that was set back gives no negative share', async () => {
  const { sampler, state } = makeSampler();
  state.now += 10_000;
  await sampler.sample(subjectOf('a'));
  const again = subjectOf('a', { runId: 'a-2', startedAt: state.now });
  state.now -= 3_000;
  const first = await sampler.sample(again);
  expect(first!.cpuPercent).toBeGreaterThanOrEqual(0);
  state.now -= 3_000;
  expect((await sampler.sample(again))!.at).toBe(state.now);
});

test('a disk is measured while somebody looks, and rests fifty times as long as that took', async () => {
  const { sampler, state } = makeSampler();
  state.walked = 4_096;
  const subject = subjectOf('a');
  sampler.keep([subject]);
  await sampler.pass();
  expect(state.walks).toBe(0);
  await sampler.sample(subject);
  state.now += 1_000;
  expect(await sampler.sample(subject)).toMatchObject({ diskBytes: 4_096 });
  expect(state.walks).toBe(1);
  state.now += 60_000;
  await sampler.sample(subject);
  expect(state.walks).toBe(2);
});

test('totals keep the part of ended runs, and count no run twice after a restart of the service', async () => {
  const { sampler, state } = makeSampler();
  const [fresh, older] = [subjectOf('a'), subjectOf('b', { startedAt: START - 60_000 })];
  state.now += 1_000;
  sampler.keep([fresh, older]);
  await sampler.pass();
  expect(sampler.totals.byOrg().get('acme')).toMatchObject({
    sampled: 2,
    sentBytes: 1_000,
    cpuMicros: 500_000,
  });
  state.now += SAMPLING.pointMs;
  await sampler.pass();
  sampler.keep([]);
  expect(sampler.totals.byOrg().get('acme')).toMatchObject({ sampled: 0, sentBytes: 61_000 });
});
