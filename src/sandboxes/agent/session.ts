import type { Logger } from 'pino';
import { ApiError } from '../../http/errors.js';
import type { Guest } from '../../guest/guest.js';
import type { SessionRecorder } from '../sessions/recorder.js';
import type { ConnectionFiles } from './connection-files.js';
import type { Envelope } from './envelope.js';
import type { ClientDefaults } from './sdk-defaults.js';

/** One exchange on a channel. The first frame has made it; the later ones with its id arrive here. */
export interface Session {
  /** Throws BadPayload. */
  receive(type: string, envelope: Envelope): void;
  /** The client has left, or the sandbox has ended. */
  abandon(reason: string): void;
}

/** The side of a channel that sessions see. */
export interface Link {
  readonly guest: Guest;
  readonly files: ConnectionFiles;
  readonly recorder: SessionRecorder;
  readonly log: Logger;
  readonly clientDefaults: ClientDefaults;
  /** Sends a message of a session. `sent` is called when it has left the process. */
  send(id: number, type: string, payload: object, sent?: () => void): void;
  /** Sends the last message of a session. */
  finish(id: number, type: string, payload: object): void;
  /** The bytes of a session that may be under way to the client: fewer when there are more sessions. */
  window(most: number): number;
  /** Counts a message of so many bytes that waits for the sandbox. The returned function counts it off. */
  hold(bytes: number): () => void;
}

/** The reason for a session that did not begin, for the client. */
export function refusalOf(error: unknown, log: Logger): string {
  if (error instanceof ApiError) return error.message;
  log.error({ err: error }, 'a session could not be recorded');
  return 'the service cannot record the session now; try again';
}
