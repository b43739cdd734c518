/**
 * Makes an e-mail address recognisable for who knows it and useless for who does not: `alice@example.com` becomes
 * `a***e@e***.com`. What is redacted already stays as it is: it has two or more `*` in a row, which addresses have not.
 */
export function redactEmail(address: string): string {
  const at = address.lastIndexOf('@');
  if (at === -1 || address.includes('**')) return address;
  // By whole characters: half of a surrogate pair could not be stored.
  const local = Array.from(address.slice(0, at));
  const domain = address.slice(at + 1);
  const [first = ''] = domain;
  const end = domain.includes('.') ? domain.slice(domain.lastIndexOf('.')) : '';
  // One or two letters hide nothing: they are left out.
  const shown = local.length > 2 ? `${local[0]}***${local.at(-1)}` : '***';
  return `${shown}@${first}***${end}`;
}
