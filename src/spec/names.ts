import { documented } from '../http/schema.js';

export const SANDBOX_NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;
export const NAME_RULE = 'name must be 1 to 128 of A-Z a-z 0-9 . - _, starting with a letter or digit';
const SLUG = /^[a-z0-9]+(-[a-z0-9]+)*$/;
const SLUG_LENGTH = { minLength: 3, maxLength: 63 };

export const SLUG_RULE = 'slug must be 3 to 63 lower-case letters, digits and single hyphens';

export function isSlug(text: string): boolean {
  return SLUG.test(text) && text.length >= SLUG_LENGTH.minLength && text.length <= SLUG_LENGTH.maxLength;
}

/** Linux allows 64 characters. The parts follow RFC 1123. */
const HOSTNAME =
  /^[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*$/;
const HOSTNAME_LENGTH = 64;
export const HOSTNAME_RULE =
  'a host name has at most 64 letters, digits, hyphens and dots; each part between dots begins and ends with a letter or digit';

export function isHostname(text: string): boolean {
  return HOSTNAME.test(text) && text.length <= HOSTNAME_LENGTH;
}

/** The forms for the OpenAPI document. */
export const NAME_FORM = documented({ pattern: SANDBOX_NAME.source });
export const SLUG_FORM = documented({ pattern: SLUG.source, ...SLUG_LENGTH });
export const HOSTNAME_FORM = documented({ pattern: HOSTNAME.source, maxLength: HOSTNAME_LENGTH });
