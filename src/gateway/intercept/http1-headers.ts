/**
 * Fields of one connection, which are not forwarded (RFC 9110, 7.6.1). The length of a body is written anew. `te`
 * stays: it asks for trailers.
 */
const OF_CONNECTION = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);
/** A client must not have these removed between the check and the server. */
const KEPT = new Set(['host', 'content-length', 'authorization', 'cookie', 'te']);

export type Field = [name: string, value: string];

/** `raw`: name, value, name, value, in the order of the message, as Node has parsed it. */
export function forwardedFields(raw: readonly string[]): Field[] {
  const named = new Set(valuesOf(raw, 'connection').flatMap(listOf));
  return pairsOf(raw).filter(([name]) => {
    const lower = name.toLowerCase();
    return !OF_CONNECTION.has(lower) && (!named.has(lower) || KEPT.has(lower));
  });
}

export function withoutFields(fields: readonly Field[], names: ReadonlySet<string>): Field[] {
  return fields.filter(([name]) => !names.has(name.toLowerCase()));
}

/** The values of all fields of the name, which is in lower case. */
export function valuesOf(raw: readonly string[], name: string): string[] {
  const values: string[] = [];
  for (let at = 0; at + 1 < raw.length; at += 2)
    if (raw[at]!.toLowerCase() === name) values.push(raw[at + 1]!);
  return values;
}

export function listOf(value: string): string[] {
  return value.split(',').map((each) => each.trim().toLowerCase());
}

export function pairsOf(flat: readonly string[]): Field[] {
  const pairs: Field[] = [];
  for (let at = 0; at + 1 < flat.length; at += 2) pairs.push([flat[at]!, flat[at + 1]!]);
  return pairs;
}
