import crc32 from 'crc-32';
import { hash } from 'node:crypto';
import { randomBase62, toBase62 } from '../lib/base62.js';

/** `token`: the personal token of a member, in the form of the hosted service. */
const SCHEMES = { key: 'skp_', token: 'msb_pat_' };
const RANDOM_LENGTH = 32;
const CHECKSUM_LENGTH = 6;
const PATTERN = /^(?:skp_|msb_pat_)[0-9A-Za-z]{38}$/;
/** The scheme and so many characters are stored and shown; the others are not. */
const SHOWN_LENGTH = 8;

/**
 * Makes an API key: its scheme, 32 random base62 characters (190 bits), and the CRC-32 of these in 6 base62 characters.
 * By the checksum the service refuses mistyped keys without a query, and secret scanners recognize keys.
 */
export function makeKey(kind: keyof typeof SCHEMES = 'key'): string {
  const body = SCHEMES[kind] + randomBase62(RANDOM_LENGTH);
  return body + checksum(body);
}

export function isWellFormedKey(key: string): boolean {
  return PATTERN.test(key) && checksum(key.slice(0, -CHECKSUM_LENGTH)) === key.slice(-CHECKSUM_LENGTH);
}

export function prefixOf(key: string): string {
  const { length } = key.startsWith(SCHEMES.token) ? SCHEMES.token : SCHEMES.key;
  return key.slice(0, length + SHOWN_LENGTH);
}

/** The stored hash. A fast function suffices, because 190 random bits cannot be guessed. */
export function hashOf(key: string): Buffer {
  return hash('sha256', key, 'buffer');
}

/** The hash as text, for use as a map key. It takes a third of the time of a Buffer. */
export function hashTextOf(key: string): string {
  return hash('sha256', key, 'base64');
}

function checksum(body: string): string {
  return toBase62(crc32.str(body) >>> 0, CHECKSUM_LENGTH);
}
