interface TimeLimit {
  signal: AbortSignal;
  /** The work is over: frees the timer, and forgets the other signal. */
  release: () => void;
}

/**
 * A signal that aborts after `millis`, with `reason`, or with another signal. Not `AbortSignal.any` with an
 * `AbortSignal.timeout`: on Node 20 the garbage collector drops the time-out, which then never fires.
 */
export function limitTime(millis: number, other?: AbortSignal, reason?: Error): TimeLimit {
  const controller = new AbortController();
  const timer = setTimeout(() => controller.abort(reason), millis);
  const stop = () => controller.abort(other?.reason);
  if (other?.aborted) stop();
  other?.addEventListener('abort', stop, { once: true });
  return {
    signal: controller.signal,
    release: () => {
      clearTimeout(timer);
      other?.removeEventListener('abort', stop);
    },
  };
}
