/** Fields of one connection, which are not forwarded (RFC 9110, 7.6.1). `te` stays when it asks for trailers. */
const OF_CONNECTION = new Set([
  'connection',
  'keep-alive',
  'proxy-connection',
  'transfer-encoding',
  'upgrade',
  'http2-settings',
]);

/** `raw`: name, value, name, value, in the order of the message, as Node has parsed it. */
export function forwardedFields(raw: readonly string[]): string[] {
  const named = new Set(valuesOf(raw, 'connection').flatMap(listOf));
  // A client must not have these removed between the check and the server.
  for (const kept of ['host', 'content-length', 'authorization', 'cookie', 'te']) named.delete(kept);
  const fields: string[] = [];
  for (let at = 0; at + 1 < raw.length; at += 2) {
    const name = raw[at]!.toLowerCase();
    if (OF_CONNECTION.has(name) || named.has(name)) continue;
    fields.push(raw[at]!, raw[at + 1]!);
  }
  return fields;
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
