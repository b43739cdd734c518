import { sleep } from '../../src/lib/sleep.js';
import type { Answer, Client } from './client.js';

/** Asks again and again until the answer is as wanted; fails with the last one when it never is. */
export async function until<T>(
  ask: () => Promise<T>,
  wanted: (value: T) => boolean,
  millis = 30_000,
): Promise<T> {
  const deadline = Date.now() + millis;
  for (;;) {
    const value = await ask();
    if (wanted(value)) return value;
    if (Date.now() > deadline)
      throw new Error(`not within ${millis} ms; last: ${JSON.stringify(value)?.slice(0, 2000)}`);
    await sleep(20);
  }
}

/** Waits for a sandbox to be in a status, or gone for `null`. */
export function untilStatus(
  client: Client,
  id: string,
  status: string | null,
  millis?: number,
): Promise<Answer> {
  return until(
    () => client.get(`/v1/sandboxes/${id}`),
    (answer) => (status === null ? answer.status === 404 : answer.body.status === status),
    millis,
  );
}
