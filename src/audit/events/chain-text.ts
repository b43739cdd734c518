import type { Instant } from '../../lib/instant.js';
import { canonicalJson } from './canonical-json.js';

// The hashed texts and their types, without Node: the console builds this file too.

/** The fields of an event that its hash covers: all of them. */
export interface LoggedEvent {
  org_id: string;
  id: string;
  occurred_at: Instant;
  category: string;
  event_type: string;
  actor: unknown;
  payload: unknown;
  resource_id: string | null;
}

export interface ChainPosition {
  seq: number;
  link: Uint8Array;
}

export interface ChainEntry extends ChainPosition {
  event_id: string;
  occurred_at: Instant;
  leaf: Uint8Array;
  unmarked: boolean;
  event: LoggedEvent | null;
}

export function leafText({
  org_id,
  id,
  occurred_at,
  category,
  event_type,
  actor,
  payload,
  resource_id,
}: LoggedEvent): string {
  return canonicalJson({ org_id, id, occurred_at, category, event_type, actor, payload, resource_id });
}

export function genesisText(orgId: string): string {
  return `sandkeep event log 1\n${orgId}`;
}

/**
 * Hashed between the previous link and the leaf. `unmarked` is covered, so that a forged event cannot become a marked
 * one.
 */
export function linkFacts({
  seq,
  occurred_at,
  unmarked,
}: Pick<ChainEntry, 'seq' | 'occurred_at' | 'unmarked'>): string {
  return `${seq}\n${occurred_at}\n${unmarked ? 'unmarked\n' : ''}`;
}
