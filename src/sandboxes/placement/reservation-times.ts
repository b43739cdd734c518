const MINUTE_MS = 60_000;
/** The wait after which the oldest run may close a worker. */
export const FIRST_CLOSING_MS = 16 * MINUTE_MS;
/** The part of the wait for which it does. */
export const CLOSED_PART = 1 / 64;

/**
 * A wait has parts that end at 1, 2, 4, 8… minutes. A reservation holds room in the first part and in the first half of
 * every other one. It needs no stored state, and grows until it is longer than the runs that it waits for.
 */
export function holdsRoom(waitedMs: number): boolean {
  return waitedMs < MINUTE_MS || positionInPart(waitedMs) < 1 / 2;
}

/** Whether the oldest run of all organizations closes its worker. */
export function closesWorker(waitedMs: number): boolean {
  return waitedMs >= FIRST_CLOSING_MS && positionInPart(waitedMs) < CLOSED_PART;
}

function positionInPart(waitedMs: number): number {
  const minutes = waitedMs / MINUTE_MS;
  return minutes / 2 ** Math.floor(Math.log2(minutes)) - 1;
}
