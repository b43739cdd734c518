import { distance } from 'fastest-levenshtein';

/** A longer name is no misspelling, and comparing it takes time. */
const MAX_LENGTH = 100;

/**
 * The known name of which `name` is probably a misspelling. A third of the letters may differ, or the unit at the end may be missing
 * (`memory` for `memory_mib`). Case is ignored. The first of equally close names wins.
 */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  if (name.length > MAX_LENGTH) return undefined;
  const asked = name.toLowerCase();
  const most = Math.ceil(name.length / 3);
  const ranked = known
    .map((candidate) => ({ candidate, edits: distance(asked, candidate.toLowerCase()) }))
    // If every letter of a short name differs, the names are unrelated.
    .filter(({ candidate, edits }) => edits <= most && edits < Math.min(name.length, candidate.length))
    .toSorted((a, b) => a.edits - b.edits);
  return ranked[0]?.candidate ?? known.find((candidate) => candidate.toLowerCase().startsWith(`${asked}_`));
}

/** The beginning of a name that a caller chose, for messages. */
export function shortened(name: string): string {
  return name.length > MAX_LENGTH * 2 ? `${name.slice(0, MAX_LENGTH * 2)}…` : name;
}

export function suggestion(name: string, known: readonly string[]): string {
  const nearest = nearestName(name, known);
  return nearest === undefined ? `there are ${known.join(', ')}` : `did you mean "${nearest}"?`;
}
