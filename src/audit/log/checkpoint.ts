import { shortInstant, type Instant } from '../../lib/instant.js';
import { type EventKeys, type PublicKey } from '../events/event-keys.js';
import type { LogPosition } from '../events/hash-chain.js';
import { isSignedBy, keysSince } from './signing-key.js';

export interface DatedPosition extends LogPosition {
  org_id: string;
  at: Instant;
}

export interface Signature {
  key_id: string;
  signature: Buffer;
}

interface CheckpointContent extends DatedPosition {
  /** The first entry with a mark. Later entries without a mark are forged. Null: no entry has a mark. */
  marked_from: number | null;
}

export type Checkpoint = CheckpointContent & Signature;

export interface DropContent extends DatedPosition {
  dropped_before: Instant;
  /** Retention drops the entries up to this one; the log begins after it. 0: it drops no entry. */
  base_seq: number;
  base_link: Buffer;
}

export type DropRecord = DropContent & Signature;

/** The signed text: one fact a line, so that any program can reproduce it. */
function textOf(content: CheckpointContent | DropContent): string {
  const facts = [
    'sandkeep event checkpoint 1',
    `org ${content.org_id}`,
    `seq ${content.seq}`,
    `link ${content.link.toString('hex')}`,
    `at ${content.at}`,
  ];
  if ('dropped_before' in content) {
    facts.push(
      `dropped before ${content.dropped_before}`,
      `base ${content.base_seq} ${content.base_link.toString('hex')}`,
    );
  } else {
    facts.push(`marked from ${content.marked_from ?? 'none'}`);
  }
  return `${facts.join('\n')}\n`;
}

export function signCheckpoint<T extends CheckpointContent | DropContent>(
  keys: EventKeys,
  content: T,
): T & Signature {
  return { ...content, key_id: keys.current.id, signature: keys.sign(textOf(content)) };
}

export interface SignatureFault {
  /** The key may belong to another installation, so that the signature proves nothing. */
  unknownKey: boolean;
  sentence: string;
}

/** `headKey`: the id of the key that signed the head. A rotation signs everything again, so later signatures of older keys are forged. */
export function checkSignature(
  checkpoint: Checkpoint | DropRecord,
  trusted: readonly PublicKey[],
  headKey?: string,
): SignatureFault | undefined {
  const key = trusted.find(({ id }) => id === checkpoint.key_id);
  const which = `the checkpoint at entry ${checkpoint.seq} of ${shortInstant(checkpoint.at)}`;
  if (!key) {
    const sentence = `${which} is signed by the key ${checkpoint.key_id}, which is not a trusted key`;
    return { unknownKey: true, sentence };
  }
  if (!isSignedBy(key, textOf(checkpoint), checkpoint.signature)) {
    const sentence = `${which} has a wrong signature of the key ${key.id}: it was changed`;
    return { unknownKey: false, sentence };
  }
  if (keysSince(trusted, headKey).includes(key)) return undefined;
  const sentence = `${which} is signed by the key ${key.id} after its replacement: it is forged`;
  return { unknownKey: false, sentence };
}
