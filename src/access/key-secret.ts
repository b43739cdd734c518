import crc32 from 'crc-32';
import { hash } from 'node:crypto';
import { randomBase62, toBase62 } from '../lib/base62.js';

const SCHEME = 'skp_';
const RANDOM_LENGTH = 32;
const CHECKSUM_LENGTH = 6;
const PATTERN = /^skp_[0-9A-Za-z]{38}$/;
/** Characters by which a key is found and recognised; the others stay unknown. */
const PREFIX_LENGTH = 12;

/**
 * Makes an API key: `skp_`, 32 random base62 characters (190 bits), and the CRC-32 of all that in 6 base62 characters,
 * by which a mistyped or made-up key is refused without asking the database, and found by secret scanners.
 */
export function makeKey(): string {
  const body = SCHEME + randomBase62(RANDOM_LENGTH);
  return body + checksum(body);
}

/** Could this be a key? Says nothing of whether it is one. */
export function isWellFormedKey(key: string): boolean {
  return PATTERN.test(key) && checksum(key.slice(0, -CHECKSUM_LENGTH)) === key.slice(-CHECKSUM_LENGTH);
}

export function prefixOf(key: string): string {
  return key.slice(0, PREFIX_LENGTH);
}

/** What is stored instead of the key. A fast hash is right here: there is no guessing 190 random bits. */
export function hashOf(key: string): Buffer {
  return hash('sha256', key, 'buffer');
}

/** The same as text, which takes a third of the time: to find it by. */
export function hashTextOf(key: string): string {
  return hash('sha256', key, 'base64');
}

function checksum(body: string): string {
  return toBase62(crc32.str(body) >>> 0, CHECKSUM_LENGTH);
}
