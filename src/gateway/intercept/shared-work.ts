import { setTimeout as sleep } from 'node:timers/promises';
import { Pace, PACE } from '../../fairness/pace.js';
import { Slots, type Release } from '../../fairness/slots.js';

const MIB = 1024 ** 2;
/** To forward a request takes 0.1 ms of the one thread of the gateway, and two handshakes take 2 ms. */
export const REQUEST_MS = 0.1;
export const HANDSHAKES_MS = 2;
/** Shorter waits are no better than the next iteration of the event loop. */
const SHORTEST_WAIT_MS = 1;

/** Divides the thread and the memory of the gateway between organizations. */
export class SharedWork {
  private readonly pace = new Pace(PACE);
  private readonly bodies = new Slots({ total: 256 * MIB, each: 64 * MIB, base: MIB });

  /** Charges work, which is done or is to begin. Undefined: no wait. Else it ends when the organization may go on. */
  charge(orgId: string, millis: number): Promise<void> | undefined {
    this.pace.see(orgId);
    const wait = this.pace.charge(orgId, millis);
    return wait < SHORTEST_WAIT_MS ? undefined : sleep(wait);
  }

  /** Undefined: other bodies take the room. */
  takeBody(orgId: string, bytes: number): Release | undefined {
    return this.bodies.acquire(orgId, bytes);
  }
}
