/** Redacts `alice@example.com` to `a***e@e***.com`. A redacted address, which has two `*` in a row, stays as it is. */
export function redactEmail(address: string): string {
  const at = address.lastIndexOf('@');
  if (at === -1 || address.includes('**')) return address;
  // PostgreSQL refuses half of a surrogate pair.
  const local = Array.from(address.slice(0, at));
  const domain = address.slice(at + 1);
  const [first = ''] = domain;
  const end = domain.includes('.') ? domain.slice(domain.lastIndexOf('.')) : '';
  // The first and the last of two letters would be the whole name.
  const shown = local.length > 2 ? `${local.at(0)}***${local.at(-1)}` : '***';
  return `${shown}@${first}***${end}`;
}
