import { createHash } from 'node:crypto';
import { genesisText, leafText, linkFacts, type ChainEntry, type LoggedEvent } from './chain-text.js';
import type { EventActor } from './schema.js';

export interface EventContent extends LoggedEvent {
  actor: EventActor;
}

export interface LogPosition {
  seq: number;
  link: Buffer;
}

export function leafOf(event: LoggedEvent): Buffer {
  return createHash('sha256').update(leafText(event)).digest();
}

export function genesisLink(orgId: string): Buffer {
  return createHash('sha256').update(genesisText(orgId)).digest();
}

/** The time stays proven after retention drops the event. */
export function linkOf(
  previous: Uint8Array,
  entry: Pick<ChainEntry, 'seq' | 'occurred_at' | 'unmarked' | 'leaf'>,
): Buffer {
  return createHash('sha256').update(previous).update(linkFacts(entry)).update(entry.leaf).digest();
}
