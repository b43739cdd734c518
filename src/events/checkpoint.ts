import { shortInstant, type Instant } from '../lib/instant.js';
import { isSignedBy, type EventKeys, type PublicKey } from './signing-key.js';

/** Where the log of an organization ended at a moment. */
export interface Place {
  org_id: string;
  seq: number;
  link: Buffer;
  at: Instant;
}

export interface Signature {
  key_id: string;
  signature: Buffer;
}

export type Checkpoint = Place & Signature;

/** What retention took away. */
export interface DroppedPlace extends Place {
  /** The events before it are gone, of the entries up to `seq`. */
  dropped_before: Instant;
  /** The entries up to here are gone, too; the log begins after it with this link. 0: none. */
  base_seq: number;
  base_link: Buffer;
}

export type Drop = DroppedPlace & Signature;

/** The text that is signed: one fact a line, so that any program can make it again. */
function textOf(place: Place | DroppedPlace): string {
  const facts = [
    'sandkeep event checkpoint 1',
    `org ${place.org_id}`,
    `seq ${place.seq}`,
    `link ${place.link.toString('hex')}`,
    `at ${place.at}`,
  ];
  if ('dropped_before' in place) {
    facts.push(
      `dropped before ${place.dropped_before}`,
      `base ${place.base_seq} ${place.base_link.toString('hex')}`,
    );
  }
  return `${facts.join('\n')}\n`;
}

export function signPlace<T extends Place | DroppedPlace>(keys: EventKeys, place: T): T & Signature {
  return { ...place, key_id: keys.current.id, signature: keys.sign(textOf(place)) };
}

export interface BadSignature {
  /** Nothing is known against it, and nothing for it: the key may be that of another installation. */
  unknownKey: boolean;
  sentence: string;
}

/** What is wrong with its signature; undefined when one of the keys made it. */
export function checkSignature(
  checkpoint: Checkpoint | Drop,
  trusted: readonly PublicKey[],
): BadSignature | undefined {
  const key = trusted.find(({ id }) => id === checkpoint.key_id);
  const which = `the checkpoint at entry ${checkpoint.seq} of ${shortInstant(checkpoint.at)}`;
  if (!key) {
    const sentence = `${which} is signed by the key ${checkpoint.key_id}, which is not among those to be trusted`;
    return { unknownKey: true, sentence };
  }
  if (isSignedBy(key, textOf(checkpoint), checkpoint.signature)) return undefined;
  const sentence = `${which} does not bear the signature of the key ${key.id}: it was changed`;
  return { unknownKey: false, sentence };
}
