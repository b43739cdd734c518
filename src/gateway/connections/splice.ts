import type { Socket } from 'node:net';
import type { Slots } from '../../fairness/slots.js';
import type { FlowCounter } from '../flows.js';

/** A connection of which one side has ended, and the other one sends nothing for so long, is over. */
const HALF_CLOSED_MS = 15 * 60_000;

export interface Splice {
  client: Socket;
  server: Socket;
  flow: FlowCounter;
  /** The bytes that wait for slow receivers, by organization. */
  unsent: Slots;
  owner: string;
}

/** Ends both sides together: a reset of one resets the other one, and an end is passed on by `relay`. */
export function joinEnds({ client, server, flow }: Splice): void {
  for (const [one, other] of [
    [client, server],
    [server, client],
  ] as const) {
    one.on('error', () => reset(other));
    one.on('close', () => {
      flow.end();
      // The reset does nothing to a side that has ended too.
      if (!one.readableEnded || !one.writableFinished) reset(other);
    });
    one.on('end', () => other.setTimeout(HALF_CLOSED_MS, () => reset(other)));
  }
}

/** Passes one direction on. It reads no faster than the other side takes, so a connection holds two chunks at most. */
export function relay(splice: Splice, direction: 'sent' | 'received'): void {
  const { client, server, flow, unsent, owner } = splice;
  const [from, to] = direction === 'sent' ? [client, server] : [server, client];
  let release: (() => void) | undefined;
  const settle = () => {
    release?.();
    release = undefined;
  };
  from.on('data', (chunk: Buffer) => {
    flow[direction](chunk.length);
    if (to.write(chunk) || to.writableLength === 0) return;
    from.pause();
    if (release) return;
    release = unsent.acquire(owner, to.writableLength);
    // An organization whose receivers take nothing must not fill the memory of all.
    if (!release) reset(from, to);
  });
  to.on('drain', () => {
    settle();
    from.resume();
  });
  to.on('close', settle);
  from.on('end', () => (wasReset(from) ? reset(to) : to.end()));
  if (from.readableEnded) to.end();
  from.resume();
}

/**
 * libuv reports an end when the last bytes and a reset arrive together, which would make a cut answer look complete. A
 * socket that was reset has no peer, and neither has one that both sides ended. Node keeps the address of a peer that
 * somebody has asked for, so this works for the sockets of servers.
 */
function wasReset(socket: Socket): boolean {
  return !socket.writableEnded && socket.remoteAddress === undefined;
}

export function reset(...sockets: Socket[]): void {
  for (const socket of sockets) if (!socket.destroyed) socket.resetAndDestroy();
}
