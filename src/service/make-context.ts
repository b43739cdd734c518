import { LONG_EVENTS, LongEvents } from '../audit/events/long-events.js';
import type { Context } from '../context.js';
import { NetworkObserver } from '../engine/network-record/observer.js';
import { UseSampler } from '../engine/use/use-sampler.js';
import { Pace, PACE } from '../fairness/pace.js';
import { STORED_ANSWERS } from '../idempotency/stored-answers.js';
import { BoundedSet } from '../lib/bounded-set.js';
import { Cursors } from '../lib/cursor.js';
import { now } from '../lib/instant.js';
import { NO_METERS } from '../lib/meters.js';
import { RecentTouches } from '../lib/recent-touches.js';
import { StoredBytes } from '../lib/stored-bytes.js';
import { DEFAULT_SETTINGS } from '../settings.js';
import { makePeer } from '../workers/peer.js';

type Defaulted =
  | 'reads'
  | 'now'
  | 'settings'
  | 'cursors'
  | 'peer'
  | 'engineLease'
  | 'use'
  | 'network'
  | 'roomyQuotas'
  | 'storedAnswers'
  | 'longEvents'
  | 'pace'
  | 'touches'
  | 'meters';

/** The parts without a default, and those that replace one. */
export type ContextParts<C extends Context> = Omit<C, Defaulted> & Partial<Pick<C, Defaulted>>;

/** The context of a process. `cursorKey`: signs cursors and the requests between processes, the same in all of them. */
export function makeContext<C extends Context>(cursorKey: Buffer, parts: ContextParts<C>): C {
  const { pool, runtime } = parts as Context;
  const defaults: Pick<Context, Defaulted> = {
    reads: pool,
    now,
    settings: DEFAULT_SETTINGS,
    cursors: new Cursors(cursorKey),
    peer: parts.peer ?? makePeer(cursorKey),
    engineLease: { isHeld: () => false },
    use: new UseSampler(runtime),
    network: new NetworkObserver(),
    roomyQuotas: new BoundedSet(),
    storedAnswers: new StoredBytes(STORED_ANSWERS),
    longEvents: new LongEvents(LONG_EVENTS),
    pace: new Pace(PACE),
    touches: new RecentTouches(),
    meters: NO_METERS,
  };
  return { ...defaults, ...parts } as Context as C;
}
