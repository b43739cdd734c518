/** `sliceMs`: the first slice of each store. A store that needs more is measured again, in a slice twice as long. */
export const SURVEY = { timeoutMs: 5_000, sliceMs: 500, atOnce: 4 };

export interface Measurable {
  name: string;
  orgId: string;
  /** In bytes; undefined if nobody can tell. It may ignore the signal. */
  measure(signal: AbortSignal): Promise<number | undefined>;
}

/**
 * Measures the sizes of stores within one deadline for all of them, in turns of the organizations. Slow stores come last, so they
 * make no other unknown. In bytes, by the names of the stores; those that took too long are missing.
 */
export async function measureAll(stores: readonly Measurable[]): Promise<Map<string, number>> {
  const sizes = new Map<string, number>();
  const deadline = performance.now() + SURVEY.timeoutMs;
  const left = () => deadline - performance.now();
  let unknown = inTurns(stores);
  for (let slice = SURVEY.sliceMs; unknown.length > 0 && left() > 0; slice *= 2) {
    const queue = unknown;
    const late: Measurable[] = [];
    const work = async () => {
      for (let store = queue.shift(); store && left() > 0; store = queue.shift()) {
        const size = await measureWithin(store, Math.min(slice, left()));
        if (size === 'late') late.push(store);
        else if (size !== undefined) sizes.set(store.name, size);
      }
    };
    await Promise.all(Array.from({ length: SURVEY.atOnce }, work));
    unknown = late;
  }
  return sizes;
}

async function measureWithin(store: Measurable, millis: number): Promise<number | 'late' | undefined> {
  const over = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<'late'>((resolve) => {
    timer = setTimeout(() => {
      resolve('late');
      over.abort();
    }, millis);
  });
  try {
    return await Promise.race([store.measure(over.signal), late]);
  } catch {
    return undefined;
  } finally {
    clearTimeout(timer);
  }
}

/** The first of each organization, then the second of each. */
function inTurns(stores: readonly Measurable[]): Measurable[] {
  const counts = new Map<string, number>();
  const ranked = stores.map((store) => {
    const rank = counts.get(store.orgId) ?? 0;
    counts.set(store.orgId, rank + 1);
    return { store, rank };
  });
  return ranked.toSorted((a, b) => a.rank - b.rank).map(({ store }) => store);
}
