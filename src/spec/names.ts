export const SANDBOX_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
export const NAME_RULE = 'name must be 1 to 128 of A-Z a-z 0-9 . - _, starting with a letter or digit';
const SLUG = /^[a-z0-9]+(-[a-z0-9]+)*$/;

export const SLUG_RULE = 'slug must be 3 to 63 lower-case letters, digits and single hyphens';

export function isSlug(text: string): boolean {
  return SLUG.test(text) && text.length >= 3 && text.length <= 63;
}

/** Linux allows 64 characters. The parts follow RFC 1123. */
const HOSTNAME = /^(?=.{1,64}$)[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/i;
export const HOSTNAME_RULE =
  'a host name has at most 64 letters, digits, hyphens and dots; each part between dots begins and ends with a letter or digit';

export function isHostname(text: string): boolean {
  return HOSTNAME.test(text);
}
