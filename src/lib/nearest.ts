import { distance } from 'fastest-levenshtein';

/** A longer name is no misspelling, and comparing it takes time. */
const MAX_LENGTH = 100;

/**
 * The known name of which `name` is probably a misspelling. A quarter of the letters may be wrong, or two in the wrong
 * order. The words around it may be missing: `memory` for `memory_mib`, `timeout` for `idle_timeout_secs`. Case and the
 * plural are ignored. The first of equally close names wins.
 */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  if (name.length > MAX_LENGTH) return undefined;
  const asked = name.toLowerCase();
  // The only letter of a name is all of it.
  const most = name.length < 3 ? 0 : Math.max(Math.floor(name.length / 4), 1);
  const ranked = known
    .map((candidate) => ({ candidate, edits: editsBetween(asked, candidate.toLowerCase()) }))
    .filter(({ edits }) => edits <= most)
    .toSorted((a, b) => a.edits - b.edits);
  return (
    ranked[0]?.candidate ?? known.find((candidate) => `_${candidate.toLowerCase()}`.includes(`_${asked}_`))
  );
}

function editsBetween(asked: string, candidate: string): number {
  const edits = Math.min(distance(asked, candidate), distance(asked, candidate.replace(/s$/, '')));
  // An exchange of two letters is two edits.
  return edits === 2 && sorted(asked) === sorted(candidate) ? 1 : edits;
}

function sorted(letters: string): string {
  return letters.split('').toSorted().join('');
}

/** The beginning of a name that a caller chose, for messages. */
export function shortened(name: string): string {
  return name.length > MAX_LENGTH * 2 ? `${name.slice(0, MAX_LENGTH * 2)}…` : name;
}

export function suggestion(name: string, known: readonly string[]): string {
  const nearest = nearestName(name, known);
  return nearest === undefined ? `there are ${known.join(', ')}` : `did you mean "${nearest}"?`;
}
