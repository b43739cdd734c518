/**
 * PostgreSQL holds neither the character U+0000 nor half of a surrogate pair. Returns the path of the first string (or
 * object key) in a parsed JSON value that has one, as `a.b[2]`, or undefined when everything can be stored.
 */
export function findUnstorable(value: unknown, path = ''): string | undefined {
  if (typeof value === 'string') return isStorable(value) ? undefined : path;
  if (Array.isArray(value)) {
    for (const [index, item] of value.entries()) {
      const found = findUnstorable(item, `${path}[${index}]`);
      if (found !== undefined) return found;
    }
    return undefined;
  }
  if (typeof value === 'object' && value !== null) {
    for (const [key, item] of Object.entries(value)) {
      // The key itself is left out of the path: it is the very text that cannot be shown.
      if (!isStorable(key)) return path;
      const found = findUnstorable(item, path ? `${path}.${key}` : key);
      if (found !== undefined) return found;
    }
  }
  return undefined;
}

function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed();
}

/** Is a parsed JSON value nested deeper than this? To be asked before anything walks it: every walk uses the stack. */
export function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((item) => isDeeperThan(item, levels - 1));
}
