import type { Context } from '../context.js';
import type { Channel } from '../db/changes.js';
import { sleep } from '../lib/sleep.js';

/** A notification gets lost while the database connection is down. */
const LOOK_EVERY_MS = 500;

interface Change {
  id: string;
  channel: Channel;
  signal: AbortSignal;
  everyMs?: number;
}

/** Calls `look` at each change until it returns a value. Throws at the abort of the signal. */
export async function untilChanged<T>(
  { changes }: Pick<Context, 'changes'>,
  { id, channel, signal, everyMs = LOOK_EVERY_MS }: Change,
  look: () => Promise<T | undefined>,
): Promise<T> {
  let wake: () => void = () => undefined;
  const unsubscribe = changes.subscribe(id, () => wake(), channel);
  try {
    for (;;) {
      signal.throwIfAborted();
      // Subscribed before the look, so that no change falls between them.
      const changed = new Promise<void>((resolve) => (wake = resolve));
      const found = await look();
      if (found !== undefined) return found;
      const pause = new AbortController();
      const stop = () => pause.abort();
      signal.addEventListener('abort', stop, { once: true });
      await Promise.race([changed, sleep(everyMs, pause.signal)]);
      signal.removeEventListener('abort', stop);
      pause.abort();
    }
  } finally {
    unsubscribe();
  }
}
