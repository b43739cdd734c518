import { sleep } from '../../src/lib/sleep.js';
import type { Answer } from './answer.js';
import type { Client } from './client.js';

/** A machine that is busy with something else makes no test fail. Below the time limit of a test, so that the last value shows. */
const PATIENCE_MS = 120_000;

/** Asks again and again until the answer is as wanted. Fails with the last one after `millis`, which can only be longer. */
export async function until<T>(
  ask: () => Promise<T>,
  wanted: (value: T) => boolean,
  millis = PATIENCE_MS,
): Promise<T> {
  const deadline = Date.now() + Math.max(millis, PATIENCE_MS);
  for (;;) {
    const value = await ask();
    if (wanted(value)) return value;
    if (Date.now() > deadline) throw new Error(`not in time; last: ${JSON.stringify(value)?.slice(0, 2000)}`);
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
