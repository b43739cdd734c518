import type { Instant } from '../../lib/instant.js';

export interface PublicKey {
  /** The first 16 hexadecimal digits of the SHA-256 of the key. */
  id: string;
  bytes: Buffer;
}

export interface EventKeys {
  current: PublicKey;
  sign(text: string): Buffer;
  /** The trusted keys, the newest first. */
  known: readonly PublicKey[];
  /** An HMAC of the leaf: only a holder of the keys can make it. */
  mark: (leaf: Buffer) => Buffer;
  /** `at`: the time of sealing; default: now. */
  isMarked(leaf: Buffer, mark: Buffer, at?: Instant): boolean;
}
