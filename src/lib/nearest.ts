import { distance } from 'fastest-levenshtein';

/**
 * The known name that `name` is probably a misspelling of, or undefined when none is close. Upper and lower case count as
 * the same letter. A third of the letters may differ, rounded up, or the unit at the end may be missing (`memory` for `memory_mib`).
 * Of equally close names the first wins.
 */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  const asked = name.toLowerCase();
  const most = Math.ceil(name.length / 3);
  const ranked = known
    .map((candidate) => ({ candidate, edits: distance(asked, candidate.toLowerCase()) }))
    // Where every letter differs, two short names have nothing in common.
    .filter(({ candidate, edits }) => edits <= most && edits < Math.min(name.length, candidate.length))
    .toSorted((a, b) => a.edits - b.edits);
  return ranked[0]?.candidate ?? known.find((candidate) => candidate.toLowerCase().startsWith(`${asked}_`));
}

/** The end of a message about an unknown name: what was probably meant, or else all that there is. */
export function suggestion(name: string, known: readonly string[]): string {
  const nearest = nearestName(name, known);
  return nearest === undefined ? `there are ${known.join(', ')}` : `did you mean "${nearest}"?`;
}
