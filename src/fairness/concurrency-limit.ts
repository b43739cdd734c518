/** Limits how much is in use at once, in total and for each key. Nothing waits. */
export interface ConcurrencyLimit {
  /** Returns a function that releases the slots, to be called once; undefined if there are too few free ones. Default: one slot. */
  acquire(key: string, amount?: number): (() => void) | undefined;
  heldBy(key: string): number;
  hasRoom(key: string): boolean;
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
    hasRoom: (key) => all < total && heldBy(key) < each,
    acquire(key, amount = 1) {
      if (all + amount > total || heldBy(key) + amount > each) return undefined;
      all += amount;
      held.set(key, heldBy(key) + amount);
      return () => {
        all -= amount;
        const left = heldBy(key) - amount;
        if (left === 0) held.delete(key);
        else held.set(key, left);
      };
    },
  };
}
