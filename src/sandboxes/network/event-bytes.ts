import { WindowCounter } from '../../fairness/window-counter.js';
import type { NewNetworkEvent } from './events.js';

/**
 * The bytes of audit events about the network of the sandboxes of one organization in an hour. Sandboxes choose their
 * destinations, and events stay. A usual event has 900 bytes, so the hour has room for 70,000. Refusals have bytes of
 * their own: the traffic that is allowed cannot hide them.
 */
export const NETWORK_EVENTS = {
  destinationBytes: 48 * 1024 ** 2,
  refusalBytes: 16 * 1024 ** 2,
  windowSecs: 3_600,
};

/** An event without its payload: the row, its entries in the indexes and in the log. */
const ROW_BYTES = 500;

export class NetworkEventBytes {
  private readonly destinations: WindowCounter;
  private readonly refusals: WindowCounter;

  constructor(limits: typeof NETWORK_EVENTS = NETWORK_EVENTS) {
    this.destinations = new WindowCounter(limits.destinationBytes, limits.windowSecs * 1_000);
    this.refusals = new WindowCounter(limits.refusalBytes, limits.windowSecs * 1_000);
  }

  /** Counts the event, if the organization has bytes left. */
  admit({ orgId, type, payload }: NewNetworkEvent): boolean {
    const counter = type === 'network_destination_used' ? this.destinations : this.refusals;
    const bytes = ROW_BYTES + Buffer.byteLength(JSON.stringify(payload));
    return !counter.add(orgId, bytes).isExceeded;
  }
}
