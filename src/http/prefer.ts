/**
 * The value of `handling` in a `Prefer` header (RFC 7240); undefined for none and for an unknown value. The first one
 * counts.
 */
export function handlingOf(header: string | string[] | undefined): 'strict' | 'lenient' | undefined {
  const handling = valueOf('handling', header);
  return handling === 'strict' || handling === 'lenient' ? handling : undefined;
}

/** The seconds of `wait`; undefined for none and for a malformed value. */
export function waitOf(header: string | string[] | undefined): number | undefined {
  const seconds = valueOf('wait', header);
  return seconds !== undefined && /^\d{1,6}$/.test(seconds) ? Number(seconds) : undefined;
}

function valueOf(wanted: string, header: string | string[] | undefined): string | undefined {
  for (const preference of [header ?? []].flat().join(',').split(',')) {
    const [name = '', value = ''] = preference.split(';')[0]!.split('=');
    if (name.trim().toLowerCase() === wanted) return value.trim().replace(/^"(.*)"$/, '$1');
  }
  return undefined;
}
