import { setTimeout as delay } from 'node:timers/promises';

/** Resolves early, without an error, if the signal aborts. */
export async function sleep(millis: number, signal?: AbortSignal): Promise<void> {
  await delay(millis, undefined, signal ? { signal } : {}).catch((error: unknown) => {
    if (!signal?.aborted) throw error;
  });
}
