import { serializerOf } from '../http/serializer.js';
import { parseExactBelow } from '../lib/exact-json.js';
import { SandboxSpec } from './specification.js';

const serializeSpec = serializerOf(SandboxSpec);

/**
 * The format of a specification's text: the version of the schema that wrote it. Raise it with each change of
 * `SandboxSpec`.
 *
 * A text of the current format is an answer already. Serializing it for each answer took 40 % of the time of a page of
 * 20 sandboxes; `npm run bench -- --only "list 20"` prints the current time. Any other text may have fields that
 * callers must not see, and may lack defaults.
 */
export const SPEC_FORMAT = 5;

export function encodeSpec(spec: unknown): string {
  return serializeSpec(spec);
}

/** The JSON for callers. `format`: of `text`; null when the writer did not know the formats. */
export function shownSpec(text: string, format: number | null): string {
  return format === SPEC_FORMAT ? text : encodeSpec(parseSpec(text));
}

/** Parses a specification or a runtime's specification. Its limits may exceed the exact integers of a number. */
export function parseSpec(text: string): unknown {
  return parseExactBelow(['rlimits'], text);
}
