import type { Instant } from '../../lib/instant.js';

export interface PublicKey {
  /** The first 16 hexadecimal digits of the SHA-256 of the key. */
  id: string;
  /** 32 bytes. */
  bytes: Buffer;
}

export interface EventKeys {
  /** Signs what is sealed from now on. */
  current: PublicKey;
  sign(text: string): Buffer;
  /** All whose signatures are ours, the current one first. */
  known: readonly PublicKey[];
  /** By what events show that one of us wrote them. `leaf`: of the event. */
  mark(leaf: Buffer): Buffer;
  /** `at`: when it is sealed; now, unless it is said. */
  isMarked(leaf: Buffer, mark: Buffer, at?: Instant): boolean;
}
