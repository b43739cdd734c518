/** Limits how many things run at once, in total and for each key. Nothing waits. */
export interface ConcurrencyLimit {
  /** Returns a function that releases the slot, to be called once; undefined if there is no free slot. */
  acquire(key: string): (() => void) | undefined;
  heldBy(key: string): number;
}

export interface Slots {
  total: number;
  each: number;
}

export function makeConcurrencyLimit({ total, each }: Slots): ConcurrencyLimit {
  const held = new Map<string, number>();
  let all = 0;
  const heldBy = (key: string) => held.get(key) ?? 0;
  return {
    heldBy,
    acquire(key) {
      if (all >= total || heldBy(key) >= each) return undefined;
      all += 1;
      held.set(key, heldBy(key) + 1);
      return () => {
        all -= 1;
        const left = heldBy(key) - 1;
        if (left === 0) held.delete(key);
        else held.set(key, left);
      };
    },
  };
}
