import type { Logger } from 'pino';
import type { Guest, GuestFiles } from '../../runtimes/guest/guest.js';
import type { SessionRecorder } from '../sessions/recorder.js';
import type { Envelope } from './envelope.js';

/** One exchange on a channel. The first frame has made it; the later ones with its id arrive here. */
export interface Session {
  receive(type: string, envelope: Envelope): void;
  /** The client has left, or the sandbox has ended. */
  abandon(reason: string): void;
}

/** The side of a channel that sessions see. */
export interface Link {
  readonly guest: Guest;
  readonly files: GuestFiles;
  readonly recorder: SessionRecorder;
  readonly log: Logger;
  /** Sends a message of a session. `sent` is called when it has left the process. */
  send(id: number, type: string, payload: object, sent?: () => void): void;
  /** Sends the last message of a session. */
  finish(id: number, type: string, payload: object): void;
  /** Counts bytes from the client that wait for the sandbox. The returned function counts them off. */
  hold(bytes: number): () => void;
}
