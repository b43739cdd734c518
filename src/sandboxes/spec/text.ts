import { serializerOf } from '../../http/serializer.js';
import { parseExactBelow } from '../../lib/exact-json.js';
import { SandboxSpec } from './schema.js';

/**
 * The specification is most of a sandbox, and passes through: it is run through the schema of answers once, when it is written,
 * and leaves the database as text (of a page of 20 sandboxes, reading and writing it took 40 % of the time).
 *
 * A text that was written so begins with a tab, which a column of type `json` keeps; when the schema changes it is to be another mark
 * (a line break, say), so that texts of before are taken for others. Others, of releases before or of somebody who
 * changed the row by hand, may have fields that are not for callers, and lack defaults: they go through the schema when they are read.
 */
const AS_SHOWN = '\t';

/** What is kept of it. */
export function specToKeep(spec: SandboxSpec): string {
  return AS_SHOWN + serialize(spec);
}

/** What callers are shown of a text that is kept, as JSON. */
export function shownSpec(kept: string | null): string {
  if (kept === null) return 'null';
  return kept.startsWith(AS_SHOWN) ? kept.slice(AS_SHOWN.length) : serialize(parseSpec(kept));
}

/** A specification, or what a runtime is given: the limits in it may be larger than a number holds exactly. */
export function parseSpec(text: string): unknown {
  return parseExactBelow('rlimits', text);
}

function serialize(spec: unknown): string {
  return serializerOf(SandboxSpec)(spec);
}
