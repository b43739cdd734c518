import { limitTime } from '../lib/time-limit.js';
import { findDestination, type Destination, type DestinationPolicy } from './destination.js';
import type { Resolve } from './resolve.js';

export interface Sender {
  reach: DestinationPolicy;
  resolve: Resolve;
  /** The limit for name resolution, connection, request and response together. */
  timeoutMs: number;
}

/**
 * Exchanges a request and its answer with an allowed address. The name is resolved once, and the connection must use
 * the checked addresses. Rejects after the time limit.
 */
export async function reachInTime<T>(
  { reach, resolve, timeoutMs }: Sender,
  url: URL,
  signal: AbortSignal | undefined,
  exchange: (destination: Destination, signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal?.throwIfAborted();
  // Released at the end: the signal of the service would keep every posted body alive.
  const over = limitTime(timeoutMs, signal, new Error(`no answer within ${timeoutMs / 1000} s`));
  const sent = findDestination(url, reach, resolve).then((destination) => exchange(destination, over.signal));
  // A query to a silent name server cannot be interrupted, so the race abandons it.
  const ended = new Promise<never>((_, reject) => {
    over.signal.addEventListener('abort', () => reject(over.signal.reason as Error), { once: true });
  });
  try {
    return await Promise.race([sent, ended]);
  } catch (error) {
    sent.catch(() => undefined);
    // The reason of the abort explains more than the resulting error.
    throw over.signal.aborted ? over.signal.reason : error;
  } finally {
    over.release();
  }
}
