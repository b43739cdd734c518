import type { ObservedFlow } from '../definition.js';
import { keyOf, sane, short, type Refusal } from './refusal.js';

/** `secrets`: refusals for a secret, which have a room of their own, so that no other refusals displace them. */
export const MINUTE = { destinations: 100, refusals: 100, secrets: 50 };

/** The traffic with one destination. Times are in milliseconds since 1970. */
export type Destination = Omit<ObservedFlow, 'sandbox' | 'name'> & { name: string | null };

/** Counts without their destinations: there were too many, or the bytes of the hour are used up. */
export interface LeftOut {
  connections: number;
  sentBytes: number;
  receivedBytes: number;
  refusals: number;
}

/** The network of one sandbox in one minute, as far as it is not written yet. */
export class SandboxMinute {
  readonly destinations = new Map<string, Destination>();
  readonly refusals = new Map<string, PendingRefusal>();
  readonly leftOut: LeftOut = { connections: 0, sentBytes: 0, receivedBytes: 0, refusals: 0 };
  private secrets = 0;

  /** The destinations and refusals that it holds apart. */
  get size(): number {
    return this.destinations.size + this.refusals.size;
  }

  get hasLeftOut(): boolean {
    return (
      this.leftOut.connections + this.leftOut.sentBytes + this.leftOut.receivedBytes + this.leftOut.refusals >
      0
    );
  }

  /** `isFull`: no further destination can be told apart. */
  addFlow(flow: ObservedFlow, isFull: boolean): void {
    const key = destinationKey(flow);
    const known = this.destinations.get(key);
    if (known) return addTo(known, flow);
    // The gateway too has an entry for the destinations that it does not tell apart, without an address.
    if (isFull || this.destinations.size >= MINUTE.destinations || flow.port === 0)
      return this.leaveOut(flow);
    this.destinations.set(key, destinationOf(flow));
  }

  addRefusal(refusal: Refusal, isFull: boolean): void {
    const key = keyOf(refusal);
    const known = this.refusals.get(key);
    if (known) return known.add(refusal);
    const isSecret = refusal.kind === 'secret';
    const others = this.refusals.size - this.secrets;
    const hasRoom = isSecret ? this.secrets < MINUTE.secrets : !isFull && others < MINUTE.refusals;
    if (!hasRoom) return void (this.leftOut.refusals += refusal.count);
    if (isSecret) this.secrets += 1;
    this.refusals.set(key, new PendingRefusal(refusal));
  }

  leaveOut({ connections, sentBytes, receivedBytes }: Omit<LeftOut, 'refusals'>): void {
    this.leftOut.connections += connections;
    this.leftOut.sentBytes += sentBytes;
    this.leftOut.receivedBytes += receivedBytes;
  }
}

/** The first one of a minute is written at once, and the further ones together at the end of the minute. */
export class PendingRefusal {
  private isWritten = false;
  private unwritten: Refusal;

  constructor(first: Refusal) {
    this.unwritten = first;
  }

  add(refusal: Refusal): void {
    const { count, firstAt } = this.unwritten;
    this.unwritten = {
      ...refusal,
      count: count + refusal.count,
      firstAt: count === 0 ? refusal.firstAt : firstAt,
    };
  }

  due(hasEnded: boolean): Refusal | undefined {
    return this.unwritten.count > 0 && (hasEnded || !this.isWritten) ? this.unwritten : undefined;
  }

  /** Further ones may have come while these were written. */
  written({ count, lastAt }: Refusal): void {
    this.isWritten = true;
    this.unwritten = { ...this.unwritten, count: this.unwritten.count - count, firstAt: lastAt };
  }
}

function destinationKey({ name = '', address, port, protocol, rule }: ObservedFlow): string {
  return `${protocol} ${address} ${port} ${rule} ${name}`;
}

function destinationOf({
  name,
  address,
  port,
  protocol,
  rule,
  secrets,
  ...counts
}: ObservedFlow): Destination {
  const { connections, sentBytes, receivedBytes, firstAt, lastAt } = counts;
  return {
    name: short(name),
    address: short(address)!,
    port,
    protocol,
    rule,
    connections,
    sentBytes,
    receivedBytes,
    firstAt: sane(firstAt),
    lastAt: sane(lastAt),
    secrets: secrets.map((secret) => short(secret)!),
  };
}

function addTo(known: Destination, flow: ObservedFlow): void {
  known.connections += flow.connections;
  known.sentBytes += flow.sentBytes;
  known.receivedBytes += flow.receivedBytes;
  known.firstAt = Math.min(known.firstAt, sane(flow.firstAt));
  known.lastAt = Math.max(known.lastAt, sane(flow.lastAt));
  known.secrets = [...new Set([...known.secrets, ...flow.secrets.map((secret) => short(secret)!)])];
}
