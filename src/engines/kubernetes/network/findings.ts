import { Type, type Static } from 'typebox';
import { Value } from 'typebox/value';
import { parseJson } from '../../../lib/json.js';

/** The result of a probe of the network. */
const Findings = Type.Object({
  isEnforced: Type.Boolean(),
  /** Why sandboxes can have no network. */
  reason: Type.Union([Type.String(), Type.Null()]),
  /** A policy can open ranges of ports. */
  hasPortRanges: Type.Boolean(),
  /** A Pod that may send nothing still reaches the node that it is on. */
  reachesNode: Type.Boolean(),
  podAddresses: Type.Array(Type.String()),
  /** Nodes, and the Service of the API server. */
  otherAddresses: Type.Array(Type.String()),
  resolvers: Type.Array(Type.String()),
});
export type Findings = Static<typeof Findings>;

const NOTHING = {
  isEnforced: false,
  hasPortRanges: false,
  reachesNode: false,
  podAddresses: [],
  otherAddresses: [],
  resolvers: [],
};

export function notEnforced(reason: string): Findings {
  return { ...NOTHING, reason };
}

/** Undefined for the text of another version. */
export function parseFindings(text: string): Findings | undefined {
  const value = parseJson(text);
  return Value.Check(Findings, value) ? value : undefined;
}
