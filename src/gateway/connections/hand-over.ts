import type { Socket } from 'node:net';
import type { Destination } from '../intercept/destination.js';
import type { GatedSandbox } from '../sandbox.js';

/** Takes connections whose requests have to be seen: for secrets, for interception, and for HTTP in clear. */
export interface RequestForwarder {
  isNeeded(sandbox: GatedSandbox, name: string, port: number): boolean;
  /** The socket is paused, and has its first bytes again. */
  handle(socket: Socket, to: Destination): void;
}
