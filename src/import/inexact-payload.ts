import { findRepeatedKey, InexactNumber, parseInexact } from '../lib/exact-json.js';

/** The event log hashes canonical JSON (RFC 8785): its numbers are doubles, its keys unique. */
export function findInexact(text: string): string | undefined {
  const repeated = findRepeatedKey(text);
  if (repeated !== undefined) return `has the key ${JSON.stringify(repeated)} twice: give it once`;
  const event = parseInexact(text) as { payload?: unknown } | undefined;
  const found = findNumber(event?.payload, 'payload');
  return found && `${found.path} is ${found.number.text}, which would be changed: write it as a string`;
}

function findNumber(value: unknown, path: string): { path: string; number: InexactNumber } | undefined {
  if (value instanceof InexactNumber) return { path, number: value };
  if (typeof value !== 'object' || value === null) return undefined;
  for (const [key, item] of Object.entries(value)) {
    const found = findNumber(item, Array.isArray(value) ? `${path}[${key}]` : `${path}.${key}`);
    if (found) return found;
  }
  return undefined;
}
