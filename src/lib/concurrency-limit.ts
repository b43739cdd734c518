/** Room for so many things at once, and for so many of one key. Nobody waits. */
export interface Places {
  /** What gives the place back; undefined when there is none. */
  take(key: string): (() => void) | undefined;
}

export function makePlaces({ total, each }: { total: number; each: number }): Places {
  const taken = new Map<string, number>();
  let all = 0;
  return {
    take(key) {
      const own = taken.get(key) ?? 0;
      if (all >= total || own >= each) return undefined;
      all += 1;
      taken.set(key, own + 1);
      return () => {
        all -= 1;
        const left = taken.get(key)! - 1;
        if (left === 0) taken.delete(key);
        else taken.set(key, left);
      };
    },
  };
}
