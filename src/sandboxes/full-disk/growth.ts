const MIB = 1024 ** 2;
export const MIN_GROWTH_BYTES = 16 * MIB;

export interface Store {
  name: string;
  orgId: string;
  disk: number;
  /** Undefined: not known. */
  before: number | undefined;
  bytes: number | undefined;
}

/**
 * The store that has grown most, of the organization whose stores together have grown most. `lost`: by how much less is
 * free on each disk. A store of unknown growth may have grown by as much of that as no other explains.
 */
export function mostGrown<T extends Store>(
  stores: readonly T[],
  lost: ReadonlyMap<number, number>,
): (T & { growth: number }) | undefined {
  const unexplained = new Map(lost);
  for (const store of stores) {
    unexplained.set(store.disk, (unexplained.get(store.disk) ?? 0) - (knownGrowth(store) ?? 0));
  }
  const grown = stores
    .map((store) => {
      const { disk, bytes = Infinity } = store;
      return { ...store, growth: knownGrowth(store) ?? Math.min(bytes, unexplained.get(disk)!) };
    })
    .filter(({ growth }) => growth > 0)
    .toSorted((a, b) => b.growth - a.growth);
  const byOrg = new Map<string, number>();
  const guessed = new Set<string>();
  for (const store of grown) {
    const { orgId, disk, growth } = store;
    // All unknown stores of an organization share the unexplained growth.
    const guess = knownGrowth(store) === undefined ? `${orgId} ${disk}` : undefined;
    if (guess !== undefined && guessed.has(guess)) continue;
    if (guess !== undefined) guessed.add(guess);
    byOrg.set(orgId, (byOrg.get(orgId) ?? 0) + growth);
  }
  const [most] = [...byOrg].toSorted((a, b) => b[1] - a[1]);
  if (!most || most[1] < MIN_GROWTH_BYTES) return undefined;
  return grown.find(({ orgId }) => orgId === most[0]);
}

function knownGrowth({ before, bytes }: Store): number | undefined {
  return before === undefined || bytes === undefined ? undefined : bytes - before;
}
