import type { Sender } from '../headers.js';
import type { PreviewRequest, PreviewResponse, PreviewTarget } from '../types.js';

/** A request that a grant allows, on its way to a sandbox. */
export interface Exchange {
  request: PreviewRequest;
  response: PreviewResponse;
  target: PreviewTarget;
  sender: Sender;
  /** Aborts when the grant ends, or the client has left. */
  signal: AbortSignal;
  /** Called for each chunk. `in`: from the client. Returns the wait for the next chunk, if any. */
  moved(this: void, direction: 'in' | 'out', bytes: number): Promise<void> | undefined;
  /** The request has a connection to the sandbox. */
  connected(this: void): void;
}

/** A client or a server that accepts nothing for so long is cut off. The kernel holds megabytes for it before that. */
export const STALL_MS = 120_000;
/** An exchange without a byte in either direction ends. Servers answer long polls, and send keep-alives, sooner. */
export const SILENCE_MS = 10 * 60_000;
/** The head of an answer. */
export const MAX_ANSWER_HEAD = 64 * 1024;
/** Interim answers of a server, which carry no bytes of a body. */
export const MOST_INTERIM = 32;
