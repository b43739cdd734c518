import { sleep } from './sleep.js';

/** Who has a place, or wants one. */
export interface Holder {
  /** For how long it has done nothing with its place, in milliseconds. */
  idleMs(): number;
  /** Makes it give its place back, soon. */
  cutOff(): void;
  /** Aborts when it does not want its place any more. */
  gone: AbortSignal;
}

/** Room for a bounded number of things at once, and for fewer of each key. */
export interface Turns {
  /** Resolves to what gives the place back, or to undefined when there was none. */
  take(key: string, holder: Holder): Promise<(() => void) | undefined>;
}

export interface TurnsOptions {
  /** How many places there are, and how many of them one key may have. */
  places: { total: number; each: number };
  /** How many may wait for a place, and how many of one key. Nobody else waits at all. */
  waiting: { total: number; each: number };
  /** How long to wait for a place, in milliseconds. */
  patienceMs: number;
  /** After how long of doing nothing a holder has to leave when somebody waits for its place, in milliseconds. */
  idleMs: number;
}

interface Waiter {
  key: string;
  holder: Holder;
  leave: (() => void) | undefined;
  over: AbortController;
}

/** How often who waits looks for a holder that does nothing, in milliseconds. */
const LOOK_EVERY_MS = 200;

export function makeTurns({ places, waiting, patienceMs, idleMs }: TurnsOptions): Turns {
  const taken = new Map<Holder, { key: string; leaving: boolean }>();
  const queue = new Set<Waiter>();

  const takenBy = (key: string) => [...taken.values()].filter((place) => place.key === key).length;
  const waitingOf = (key: string) => [...queue].filter((waiter) => waiter.key === key).length;

  function enter(key: string, holder: Holder): (() => void) | undefined {
    if (taken.size >= places.total || takenBy(key) >= places.each) return undefined;
    taken.set(holder, { key, leaving: false });
    return () => {
      if (taken.delete(holder)) admit();
    };
  }

  /** Who has fewest places goes first, so that nobody has to wait until the long queue of another is through; then in order of arrival. */
  function admit(): void {
    for (const waiter of [...queue].toSorted((a, b) => takenBy(a.key) - takenBy(b.key))) {
      if (waiter.leave || waiter.holder.gone.aborted) continue;
      waiter.leave = enter(waiter.key, waiter.holder);
      if (waiter.leave) waiter.over.abort();
    }
  }

  /** Of the places that would help, takes away the one that has been of no use for longest. */
  function makeRoom(key: string): void {
    const own = takenBy(key) >= places.each;
    const helpful = [...taken].filter(([, place]) => !own || place.key === key);
    // One after the other: the place that is about to be free may be enough.
    if (helpful.some(([, { leaving }]) => leaving)) return;
    const [longest] = helpful
      .map(([holder, place]) => ({ holder, place, idle: holder.idleMs() }))
      .toSorted((a, b) => b.idle - a.idle);
    if (!longest || longest.idle < idleMs) return;
    longest.place.leaving = true;
    longest.holder.cutOff();
  }

  return {
    async take(key, holder) {
      if (holder.gone.aborted) return undefined;
      const entered = enter(key, holder);
      if (entered || queue.size >= waiting.total || waitingOf(key) >= waiting.each) return entered;
      const waiter: Waiter = { key, holder, leave: undefined, over: new AbortController() };
      queue.add(waiter);
      const giveUp = () => waiter.over.abort();
      holder.gone.addEventListener('abort', giveUp);
      makeRoom(key);
      const look = setInterval(() => makeRoom(key), LOOK_EVERY_MS);
      await sleep(patienceMs, waiter.over.signal);
      clearInterval(look);
      holder.gone.removeEventListener('abort', giveUp);
      queue.delete(waiter);
      return waiter.leave;
    },
  };
}
