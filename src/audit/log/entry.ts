import type { Instant } from '../../lib/instant.js';
import type { EventContent } from '../events/content.js';

/** An entry of a log, wherever it was read. */
export interface Entry {
  seq: number;
  event_id: string;
  occurred_at: Instant;
  leaf: Buffer;
  /** Nobody who has the event keys wrote its event. */
  unmarked: boolean;
  link: Buffer;
  event: EventContent | null;
}
