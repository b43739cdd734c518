import { randomInt } from 'node:crypto';
import { tokenKind } from '../../lib/token.js';

/** The code of a device, which only the device has. */
export const DEVICE_CODE = tokenKind('skd_');

/** No vowels and no similar letters (RFC 8628, section 6.1): 34 random bits, which the limit of failures protects. */
const LETTERS = 'BCDFGHJKLMNPQRSTVWXZ';
const LENGTH = 8;
const PATTERN = new RegExp(`^[${LETTERS}]{${LENGTH}}$`);

/** The code that a person types. */
export function makeUserCode(): string {
  return Array.from({ length: LENGTH }, () => LETTERS[randomInt(LETTERS.length)]).join('');
}

/** `BCDF-GHJK`. */
export function shownUserCode(code: string): string {
  return `${code.slice(0, LENGTH / 2)}-${code.slice(LENGTH / 2)}`;
}

/** Undefined: the text is no code. */
export function readUserCode(text: string): string | undefined {
  const code = text.toUpperCase().replaceAll(/[\s-]/g, '');
  return PATTERN.test(code) ? code : undefined;
}
