import { expect, test, vi } from 'vitest';
import { SLOW_PULL } from '../../src/runtimes/docker/images/limits.js';
import { Pull } from '../../src/runtimes/docker/images/pull.js';

const body = async function* (bytes: number) {
  yield Promise.resolve(Buffer.alloc(bytes));
};
const read = async (pull: Pull, bytes: number) => {
  for await (const _ of pull.count(body(bytes), () => undefined));
};

function begun() {
  vi.useFakeTimers({ toFake: ['performance', 'setTimeout', 'clearTimeout'] });
  const pull = new Pull(new AbortController().signal);
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
