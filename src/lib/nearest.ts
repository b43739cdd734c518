import { distance } from 'fastest-levenshtein';

/** The candidate that a misspelt word most likely stands for: the closest one, when at most a third of its letters differ. */
export function nearest(word: string, candidates: Iterable<string>): string | undefined {
  let best: string | undefined;
  let least = Infinity;
  for (const candidate of candidates) {
    const letters = distance(word.toLowerCase(), candidate.toLowerCase());
    if (letters <= Math.max(word.length, candidate.length) / 3 && letters < least) {
      best = candidate;
      least = letters;
    }
  }
  return best;
}
