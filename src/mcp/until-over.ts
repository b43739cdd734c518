import { sleep } from '../lib/sleep.js';

/** Clients of the protocol usually wait a minute for a result. */
const WAIT_MS = 45_000;
const POLL_MS = 500;
const OVER = new Set(['succeeded', 'failed', 'cancelled']);

/** The state of work when it is over, or after 45 seconds. */
export async function untilOver<T extends { status: string }>(read: () => Promise<T>): Promise<T> {
  const until = performance.now() + WAIT_MS;
  for (;;) {
    const state = await read();
    if (OVER.has(state.status) || performance.now() >= until) return state;
    await sleep(POLL_MS);
  }
}
