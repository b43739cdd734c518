import { sleep } from '../../src/lib/sleep.js';
import type { Answer } from './answer.js';
import type { Client } from './client.js';
import { pollDelay } from './poll-delay.js';

/** The time-out covers a busy machine. It is below the time limit of a test, so that the last value is shown. */
const PATIENCE_MS = 400_000;
const LEAST_DELAY_MS = 20;

/** Polls until the value is as wanted. Throws with the last value after at least `millis`. */
export async function until<T>(
  ask: () => Promise<T>,
  wanted: (value: T) => boolean,
  millis = PATIENCE_MS,
): Promise<T> {
  const begun = Date.now();
  const deadline = begun + Math.max(millis, PATIENCE_MS);
  for (;;) {
    const value = await ask();
    if (wanted(value)) return value;
    if (Date.now() > deadline) throw new Error(`not in time; last: ${JSON.stringify(value)?.slice(0, 2000)}`);
    await sleep(pollDelay(Date.now() - begun, LEAST_DELAY_MS));
  }
}

/** Waits for a status of a sandbox, or for its absence with `null`. */
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
