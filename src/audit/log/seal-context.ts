import type pg from 'pg';
import type { Instant } from '../../lib/instant.js';
import type { EventKeys } from '../events/event-keys.js';
import type { EventHeads } from './heads.js';

/** The part of the context that sealing uses. */
export interface SealContext {
  pool: pg.Pool;
  eventKeys: () => EventKeys;
  eventHeads: EventHeads;
  now: () => Instant;
}
