/**
 * PostgreSQL stores neither U+0000 nor half of a surrogate pair. Returns the path, such as `a.b[2]`, of the first
 * string or key that contains one.
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
      // The path leaves the key out, because it cannot be printed.
      if (!isStorable(key)) return path;
      const found = findUnstorable(item, path ? `${path}.${key}` : key);
      if (found !== undefined) return found;
    }
  }
  return undefined;
}

/** Replaces with U+FFFD what PostgreSQL cannot store. */
export function toStorable(text: string): string {
  return text.replaceAll('\0', '\uFFFD').toWellFormed();
}

function isStorable(text: string): boolean {
  return !text.includes('\0') && text.isWellFormed();
}

/** To be checked before any recursion into an untrusted JSON value, because recursion uses the stack. */
export function isDeeperThan(value: unknown, levels: number): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return levels === 0 || Object.values(value).some((item) => isDeeperThan(item, levels - 1));
}
