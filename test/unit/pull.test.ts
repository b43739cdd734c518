import { createHash } from 'node:crypto';
import { setImmediate as turn } from 'node:timers/promises';
import { expect, test, vi } from 'vitest';
import { PacedSteps } from '../../src/fairness/paced-steps.js';
import { checkLayer, ImageBudget, verified } from '../../src/registry/layer-check.js';
import { PULL_TIMEOUT_MS, SLOW_PULL } from '../../src/registry/limits.js';
import { Pull } from '../../src/registry/pull.js';

const body = async function* (bytes: number) {
  yield Promise.resolve(Buffer.alloc(bytes));
};
const read = async (pull: Pull, bytes: number) => {
  for await (const _ of pull.count(body(bytes), () => undefined));
};

function begun() {
  vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] });
  const pull = new Pull('a', new AbortController().signal, PULL_TIMEOUT_MS);
  pull.begin();
  return pull;
}

test('a pull is as slow as its bytes arrive, into however many small blobs a registry divides them', async () => {
  const pull = begun();
  for (let second = 0; second < 10; second += 1) {
    vi.advanceTimersByTime(1_000);
    await read(pull, 1_000);
  }
  expect(pull.idleMs()).toBe(10_000);
  await read(pull, SLOW_PULL.bytes);
  expect(pull.idleMs()).toBe(0);
  vi.useRealTimers();
});

test('the wait for another pull does not count as time of a registry', () => {
  const pull = begun();
  pull.pause();
  vi.advanceTimersByTime(2 * SLOW_PULL.ms);
  expect(pull.idleMs()).toBe(0);
  pull.resume();
  vi.advanceTimersByTime(1_000);
  expect(pull.idleMs()).toBe(1_000);
  vi.useRealTimers();
});

test('a layer that arrives at full speed is hashed in many iterations of the event loop', async () => {
  const chunk = Buffer.alloc(64 * 1_024);
  const chunks = Array.from({ length: 1_024 }, () => chunk);
  const size = chunk.length * chunks.length;
  const digest = `sha256:${createHash('sha256').update(Buffer.concat(chunks)).digest('hex')}`;
  const source = async function* () {
    for (const each of chunks) yield Promise.resolve(each);
  };
  const steps = new PacedSteps();
  const step = async <T>(work: () => T) => steps.once('a', work);
  const progress = { passed: 0 };
  const budget = new ImageBudget({ bytes: size, beyond: 'too_large' }, () => undefined);
  const checking = (async () => {
    for await (const piece of checkLayer(verified(source(), { digest, size }, step), digest, budget, step))
      progress.passed += piece.length;
  })();
  let most = 0;
  while (progress.passed < size) {
    const before = progress.passed;
    await turn();
    most = Math.max(most, progress.passed - before);
  }
  await checking;
  expect(progress.passed).toBe(size);
  // 1 ms of hashing twice, and the chunks in buffers.
  expect(most).toBeLessThan(size / 10);
});
