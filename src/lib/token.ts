import { randomBase62 } from './base62.js';

/** 256 random bits. */
const RANDOM_LENGTH = 43;

export interface TokenKind {
  make: () => string;
  isWellFormed: (text: string) => boolean;
  /** The source of a regular expression for one token. */
  pattern: string;
}

/** A kind of secret token: a prefix that names the kind, and random base62 characters. */
export function tokenKind(prefix: `${string}_`): TokenKind {
  const pattern = `${prefix}[0-9A-Za-z]{${RANDOM_LENGTH}}`;
  const whole = new RegExp(`^${pattern}$`);
  return {
    pattern,
    make: () => prefix + randomBase62(RANDOM_LENGTH),
    isWellFormed: (text) => whole.test(text),
  };
}
