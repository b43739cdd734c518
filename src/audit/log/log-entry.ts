import type { Instant } from '../../lib/instant.js';
import type { EventContent } from '../events/hash-chain.js';

export interface LogEntry {
  /** From 1, without gaps. */
  seq: number;
  event_id: string;
  occurred_at: Instant;
  leaf: Buffer;
  /** The event has no valid mark: a process without the event keys wrote it. */
  unmarked: boolean;
  link: Buffer;
  /** Null: retention dropped the event. */
  event: EventContent | null;
}
