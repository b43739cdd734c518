import type { Pool } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';
import type { ActiveEventKeys } from '../events/active-keys.js';
import type { EventKeys } from '../events/event-keys.js';
import type { SeenHeads } from './seen-heads.js';

export interface SealContext {
  pool: Pool;
  eventKeys: () => EventKeys;
  activeKeys: ActiveEventKeys;
  seenHeads: SeenHeads;
  now: () => Instant;
}
