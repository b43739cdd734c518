import { toHex } from '../../lib/bytes.js';
import { ExplainedError } from '../../lib/explained-error.js';
import { shortInstant, type Instant } from '../../lib/instant.js';
import type { ChainPosition } from '../events/chain-text.js';

// The signed texts and the rules of keys, without Node: the console builds this file too.

/** Ed25519, raw: 32 bytes in base64. */
export const KEY = /^[A-Za-z0-9+/]{43}=$/;

interface Signed {
  key_id: string;
  signature: Uint8Array;
}

interface SignedPosition extends ChainPosition {
  org_id: string;
  at: Instant;
}

export interface CheckpointFacts extends SignedPosition {
  /** The first entry with a mark. Later entries without a mark are forged. Null: no entry has a mark. */
  marked_from: number | null;
}

export interface DropFacts extends SignedPosition {
  dropped_before: Instant;
  /** Retention drops the entries up to this one; the log begins after it. 0: it drops no entry. */
  base_seq: number;
  base_link: Uint8Array;
}

export type SignedCheckpoint = CheckpointFacts & Signed;
export type SignedDrop = DropFacts & Signed;

/** The signed text: one fact a line, so that any program can reproduce it. */
export function signedText(content: CheckpointFacts | DropFacts): string {
  const facts = [
    'sandkeep event checkpoint 1',
    `org ${content.org_id}`,
    `seq ${content.seq}`,
    `link ${toHex(content.link)}`,
    `at ${content.at}`,
  ];
  if ('dropped_before' in content) {
    facts.push(
      `dropped before ${content.dropped_before}`,
      `base ${content.base_seq} ${toHex(content.base_link)}`,
    );
  } else {
    facts.push(`marked from ${content.marked_from ?? 'none'}`);
  }
  return `${facts.join('\n')}\n`;
}

export interface SignatureFault {
  /** The key may belong to another installation, so that the signature proves nothing. */
  unknownKey: boolean;
  sentence: string;
}

/**
 * `headKey`: the id of the key that signed the head. A rotation signs everything again, so later signatures of older
 * keys are forged.
 */
export function findSignatureFault<K extends { id: string }>(
  checkpoint: SignedCheckpoint | SignedDrop,
  trusted: readonly K[],
  headKey: string | undefined,
  isSignedBy: (key: K) => boolean,
): SignatureFault | undefined {
  const key = trusted.find(({ id }) => id === checkpoint.key_id);
  const which = `the checkpoint at entry ${checkpoint.seq} of ${shortInstant(checkpoint.at)}`;
  if (!key) {
    const sentence = `${which} is signed by the key ${checkpoint.key_id}, which is not a trusted key`;
    return { unknownKey: true, sentence };
  }
  if (!isSignedBy(key)) {
    const sentence = `${which} has a wrong signature of the key ${key.id}: it was changed`;
    return { unknownKey: false, sentence };
  }
  if (keysSince(trusted, headKey).includes(key)) return undefined;
  const sentence = `${which} is signed by the key ${key.id} after its replacement: it is forged`;
  return { unknownKey: false, sentence };
}

/** The key with this id and all newer keys; all keys when the id is unknown. `known`: the newest first. */
export function keysSince<K extends { id: string }>(
  known: readonly K[],
  id: string | undefined,
): readonly K[] {
  const at = known.findIndex((key) => key.id === id);
  return at === -1 ? known : known.slice(0, at + 1);
}

export function requireKeyText(text: string): string {
  if (KEY.test(text)) return text;
  throw new ExplainedError(
    `"${text}" is not a public key: give 32 bytes in base64, as "sandkeep events key" prints them`,
  );
}

/** The keys in lines of "sandkeep events key", which prints the id of a key after it. */
export function keyTextsIn(text: string): string[] {
  return text
    .trim()
    .split('\n')
    .map((line) => requireKeyText(line.split('  ')[0]!.trim()));
}
