import { shortInstant, type Instant } from '../../lib/instant.js';
import { type EventKeys, type PublicKey } from '../events/event-keys.js';
import { isSignedBy, keysSince } from './signing-key.js';

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

/** What is signed at the end of a log, of all of it. */
interface End extends Place {
  /** The first event of our own; one that comes later and bears no mark was put in by somebody else. Null: there is none yet. */
  marked_from: number | null;
}

export type Checkpoint = End & Signature;

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
function textOf(place: End | DroppedPlace): string {
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
  } else {
    facts.push(`marked from ${place.marked_from ?? 'none'}`);
  }
  return `${facts.join('\n')}\n`;
}

export function signPlace<T extends End | DroppedPlace>(keys: EventKeys, place: T): T & Signature {
  return { ...place, key_id: keys.current.id, signature: keys.sign(textOf(place)) };
}

export interface BadSignature {
  /** Nothing is known against it, and nothing for it: the key may be that of another installation. */
  unknownKey: boolean;
  sentence: string;
}

/**
 * What is wrong with its signature; undefined when one of the keys made it. `endKey`: the id of the one that signed the end of the log.
 * When a key is replaced, all that counts is signed anew: what an older one signed is not ours then, whatever that key was.
 */
export function checkSignature(
  checkpoint: Checkpoint | Drop,
  trusted: readonly PublicKey[],
  endKey?: string,
): BadSignature | undefined {
  const key = trusted.find(({ id }) => id === checkpoint.key_id);
  const which = `the checkpoint at entry ${checkpoint.seq} of ${shortInstant(checkpoint.at)}`;
  if (!key) {
    const sentence = `${which} is signed by the key ${checkpoint.key_id}, which is not among those to be trusted`;
    return { unknownKey: true, sentence };
  }
  if (!isSignedBy(key, textOf(checkpoint), checkpoint.signature)) {
    const sentence = `${which} does not bear the signature of the key ${key.id}: it was changed`;
    return { unknownKey: false, sentence };
  }
  if (keysSince(trusted, endKey).includes(key)) return undefined;
  const sentence = `${which} is signed by the key ${key.id}, which had been replaced: somebody else has it`;
  return { unknownKey: false, sentence };
}
