import { Rotation } from '../../fairness/rotation.js';

/** `sliceMs`: the first slice of each store. A store that needs more is measured again, in a slice twice as long. */
export const SURVEY = { timeoutMs: 5_000, sliceMs: 500, atOnce: 4 };

export interface Measurable {
  name: string;
  orgId: string;
  /** In bytes; undefined if nobody can tell. It may ignore the signal. */
  measure(signal: AbortSignal): Promise<number | undefined>;
}

/**
 * Measures the sizes of stores within one deadline for all of them, in turns of the organizations. Slow stores come
 * last, so they make no other unknown. In bytes, by the names of the stores; those that took too long are missing.
 */
export async function measureAll(stores: readonly Measurable[]): Promise<Map<string, number>> {
  const sizes = new Map<string, number>();
  const deadline = performance.now() + SURVEY.timeoutMs;
  const left = () => deadline - performance.now();
  let unknown = new Rotation<Measurable>();
  for (const store of stores) unknown.add(store.orgId, store);
  for (let slice = SURVEY.sliceMs; unknown.size > 0 && left() > 0; slice *= 2) {
    const queue = unknown;
    const late = new Rotation<Measurable>();
    const work = async () => {
      for (let store = queue.take(); store && left() > 0; store = queue.take()) {
        const size = await measureWithin(store, Math.min(slice, left()));
        if (size === 'late') late.add(store.orgId, store);
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
