/** Does work when others have had their time, and throws once the build has been aborted. */
export type Turn = <T>(work: () => T) => Promise<T>;

/** The longest turn: the event loop does nothing else meanwhile. */
const LONGEST_MS = 1;
export const MOST_ITEMS_OF_TURN = 2_048;

/** Calls `each` with all items: the items and the work on each are of a caller. */
export async function inTurns<T>(items: Iterable<T>, turn: Turn, each: (item: T) => void): Promise<void> {
  const iterator = items[Symbol.iterator]();
  let next = iterator.next();
  while (next.done !== true) {
    await turn(() => {
      const end = performance.now() + LONGEST_MS;
      for (let left = MOST_ITEMS_OF_TURN; left > 0 && next.done !== true; left -= 1) {
        each(next.value);
        next = iterator.next();
        if (performance.now() >= end) break;
      }
    });
  }
}
