import { createHash } from 'node:crypto';
import type { Instant } from '../../lib/instant.js';
import type { EventActor } from './schema.js';

/**
 * The one text of a JSON value (RFC 8785): no white space, members in the order of their UTF-16 code units, numbers and
 * strings as ECMAScript writes them. Members that are undefined are left out, as JSON leaves them out.
 */
export function canonicalJson(value: unknown): string {
  if (Array.isArray(value)) return `[${value.map((item) => canonicalJson(item ?? null)).join(',')}]`;
  if (typeof value !== 'object' || value === null) return JSON.stringify(value);
  const members = Object.entries(value)
    .filter(([, member]) => member !== undefined)
    // Comparing strings compares their code units.
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member)}`);
  return `{${members.join(',')}}`;
}

/** All that an event says. */
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

/** SHA-256 of the canonical JSON of what an event says. */
export function leafOf(event: EventContent): Buffer {
  const { org_id, id, occurred_at, category, event_type, actor, payload, resource_id } = event;
  const content = { org_id, id, occurred_at, category, event_type, actor, payload, resource_id };
  return createHash('sha256').update(canonicalJson(content)).digest();
}

/** What the first link of an organization's log is made of in place of a link before it. */
export function originOf(orgId: string): Buffer {
  return createHash('sha256').update(`sandkeep event log 1\n${orgId}`).digest();
}

/**
 * SHA-256 of the link before, and of the place, the time and the content of this entry. The time is in it so that an entry
 * whose event was dropped still says for sure how old that was; that it is unmarked, so that nobody can make it one of ours.
 */
export function linkOf(
  before: Buffer,
  {
    seq,
    occurred_at,
    leaf,
    unmarked,
  }: { seq: number; occurred_at: Instant; leaf: Buffer; unmarked: boolean },
): Buffer {
  const facts = `${seq}\n${occurred_at}\n${unmarked ? 'unmarked\n' : ''}`;
  return createHash('sha256').update(before).update(facts).update(leaf).digest();
}
