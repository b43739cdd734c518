import { randomInt } from 'node:crypto';

const ALPHABET = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** `length` characters, each drawn uniformly by the system's cryptographic generator. */
export function randomBase62(length: number): string {
  return Array.from({ length }, () => ALPHABET[randomInt(62)]).join('');
}

/** A non-negative integer, left-padded with `0` to `length` characters. */
export function toBase62(value: number, length: number): string {
  let text = '';
  for (let rest = value; rest > 0; rest = Math.floor(rest / 62)) text = ALPHABET[rest % 62]! + text;
  return text.padStart(length, '0');
}
