/**
 * The value of `handling` in a `Prefer` header (RFC 7240); undefined for none and for an unknown value. The first one
 * counts.
 */
export function handlingOf(header: string | string[] | undefined): 'strict' | 'lenient' | undefined {
  for (const preference of [header ?? []].flat().join(',').split(',')) {
    const [name = '', value = ''] = preference.split(';')[0]!.split('=');
    if (name.trim().toLowerCase() !== 'handling') continue;
    const handling = value.trim().replace(/^"(.*)"$/, '$1');
    return handling === 'strict' || handling === 'lenient' ? handling : undefined;
  }
  return undefined;
}
