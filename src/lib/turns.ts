import { sleep } from './sleep.js';

/** Room for a bounded number of things at once, and for fewer of each key. */
export interface Turns {
  /** Resolves to what gives the place back, or to undefined when there was none for `patienceMs` milliseconds. */
  take(key: string, patienceMs: number): Promise<(() => void) | undefined>;
}

export function makeTurns({ total, each }: { total: number; each: number }): Turns {
  let taken = 0;
  const takenBy = new Map<string, number>();
  const waiting = new Set<() => void>();

  function enter(key: string): (() => void) | undefined {
    const own = takenBy.get(key) ?? 0;
    if (taken >= total || own >= each) return undefined;
    taken += 1;
    takenBy.set(key, own + 1);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      taken -= 1;
      const rest = takenBy.get(key)! - 1;
      if (rest === 0) takenBy.delete(key);
      else takenBy.set(key, rest);
      // In the order of arrival; whoever has no room of its own lets the next one go first.
      for (const look of [...waiting]) look();
    };
  }

  return {
    async take(key, patienceMs) {
      const entered = enter(key);
      if (entered) return entered;
      const patience = new AbortController();
      let leave: (() => void) | undefined;
      const look = () => {
        leave ??= enter(key);
        if (leave) patience.abort();
      };
      waiting.add(look);
      await sleep(patienceMs, patience.signal);
      waiting.delete(look);
      return leave;
    },
  };
}
