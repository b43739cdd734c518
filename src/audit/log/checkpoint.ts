import type { Instant } from '../../lib/instant.js';
import { type EventKeys, type PublicKey } from '../events/event-keys.js';
import type { LogPosition } from '../events/hash-chain.js';
import {
  findSignatureFault,
  signedText,
  type CheckpointFacts,
  type DropFacts,
  type SignatureFault,
  type SignedCheckpoint,
  type SignedDrop,
} from './signed-text.js';
import { isSignedBy } from './signing-key.js';

interface DatedPosition extends LogPosition {
  org_id: string;
  at: Instant;
}

export interface Signature {
  key_id: string;
  signature: Buffer;
}

type CheckpointContent = CheckpointFacts & DatedPosition;

export type Checkpoint = CheckpointContent & Signature;

export type DropContent = DropFacts & DatedPosition & { base_link: Buffer };

export type DropRecord = DropContent & Signature;

export function signCheckpoint<T extends CheckpointContent | DropContent>(
  keys: EventKeys,
  content: T,
): T & Signature {
  return { ...content, key_id: keys.current.id, signature: keys.sign(signedText(content)) };
}

/** `headKey`: the id of the key that signed the head. */
export function checkSignature(
  checkpoint: SignedCheckpoint | SignedDrop,
  trusted: readonly PublicKey[],
  headKey?: string,
): SignatureFault | undefined {
  return findSignatureFault(checkpoint, trusted, headKey, (key) =>
    isSignedBy(key, signedText(checkpoint), checkpoint.signature),
  );
}
