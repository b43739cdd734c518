import { createHash } from 'node:crypto';
import type { Instant } from '../../lib/instant.js';
import { canonicalJson } from './canonical-json.js';
import type { EventActor } from './schema.js';

/** The fields of an event that its hash covers: all of them. */
export interface EventContent {
  org_id: string;
  id: string;
  occurred_at: Instant;
  category: string;
  event_type: string;
  actor: EventActor;
  payload: unknown;
  resource_id: string | null;
}

export interface LogPosition {
  seq: number;
  link: Buffer;
}

export function leafOf(event: EventContent): Buffer {
  const { org_id, id, occurred_at, category, event_type, actor, payload, resource_id } = event;
  const content = { org_id, id, occurred_at, category, event_type, actor, payload, resource_id };
  return createHash('sha256').update(canonicalJson(content)).digest();
}

export function genesisLink(orgId: string): Buffer {
  return createHash('sha256').update(`sandkeep event log 1\n${orgId}`).digest();
}

/** The time stays proven after retention drops the event. `unmarked` is covered, so that a forged event cannot become a marked one. */
export function linkOf(
  previous: Buffer,
  {
    seq,
    occurred_at,
    leaf,
    unmarked,
  }: { seq: number; occurred_at: Instant; leaf: Buffer; unmarked: boolean },
): Buffer {
  const facts = `${seq}\n${occurred_at}\n${unmarked ? 'unmarked\n' : ''}`;
  return createHash('sha256').update(previous).update(facts).update(leaf).digest();
}
