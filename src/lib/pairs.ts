/**
 * Parses `name=value,name=value` with percent-encoded values, the form of lists in variables of OpenTelemetry.
 * Undefined: it has another form.
 */
export function parsePairs(text: string): Record<string, string> | undefined {
  const pairs: [string, string][] = [];
  for (const part of text.split(',')) {
    if (part.trim() === '') continue;
    const at = part.indexOf('=');
    const name = part.slice(0, Math.max(at, 0)).trim();
    const value = decode(part.slice(at + 1).trim());
    if (name === '' || value === undefined) return undefined;
    pairs.push([name, value]);
  }
  return Object.fromEntries(pairs);
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
