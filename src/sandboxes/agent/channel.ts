import type { Buffer } from 'node:buffer';
import type { Logger } from 'pino';
import { VERSION } from '../../lib/version.js';
import type { Guest } from '../../guest/guest.js';
import { ConnectionFiles } from './connection-files.js';
import {
  encodeEnvelope,
  EnvelopeReader,
  greeting,
  ProtocolError,
  SESSION_START,
  TERMINAL,
  type Envelope,
} from './envelope.js';
import { ExecSession } from './exec-session.js';
import { FileSession } from './file-session.js';
import { BadPayload } from './payload.js';
import type { ClientDefaults } from './sdk-defaults.js';
import type { Link, Session } from './session.js';
import type { SessionRecorder } from '../sessions/recorder.js';
import { TcpSession } from './tcp-session.js';

/** The sessions of one connection that may be open at once. */
export const MAX_SESSIONS = 64;
/** Longer than the longest command that a sandbox takes. */
const MAX_REQUEST = 512 * 1024;
/** The bytes from a client that may wait for the sandbox. Beyond them the connection is not read. */
const MAX_WAITING = 8 * 1024 * 1024;
/** The bytes that may wait for the client. Beyond them the connection is not read, and large answers wait. */
const MAX_UNSENT = 4 * 1024 * 1024;
/** The same limit for a connection whose organization has too many bytes in memory. */
const MAX_OVER_BUDGET = 256 * 1024;
const MIN_WINDOW = 64 * 1024;
/** A WebSocket message has a head of at most so many bytes. */
const MESSAGE_HEAD = 14;
/** The memory of a waiting message beside its bytes. */
const MESSAGE_COST = 1024;

/** A byte pipe to a client. */
export interface Pipe {
  /** `sent` is called when the bytes have left the process. */
  send(data: Buffer, sent: () => void): void;
  /** Stops and continues to read from the client. */
  pause(): void;
  resume(): void;
  close(): void;
  /** Closes without a word, and drops everything that has arrived. */
  cut(): void;
}

/** The time and the memory that connections share. */
interface Share {
  /** Does work in steps, in turns with other connections. */
  work(steps: Iterator<unknown>): void;
  /** Counts bytes that the connection holds in memory; negative when it releases them. */
  hold(bytes: number): void;
  /** Whether the organization holds too many bytes. */
  isOverBudget(): boolean;
}

/** The protocol of the official clients on one connection, over the way into one sandbox. */
export class AgentChannel implements Link {
  readonly files: ConnectionFiles;
  private readonly reader = new EnvelopeReader();
  private readonly sessions = new Map<number, Session>();
  /** The messages that were not read to their end, and whether the connection waits for that. */
  private unread = 0;
  private isBehind = false;
  private waiting = 0;
  private unsent = 0;
  private paused = false;
  private closed = false;
  private drained: (() => void)[] = [];
  /** The bytes of a WebSocket message that is not complete yet. */
  private incomplete = 0;
  private counted = 0;

  constructor(
    readonly guest: Guest,
    private readonly pipe: Pipe,
    readonly recorder: SessionRecorder,
    readonly log: Logger,
    readonly clientDefaults: ClientDefaults,
    private readonly share: Share,
  ) {
    this.files = new ConnectionFiles(guest, () => this.room());
    this.transmit(greeting(VERSION));
  }

  /** Bytes have arrived; their message may follow later. */
  arrived(bytes: number): void {
    this.incomplete += bytes;
    this.regulate();
    if (this.closed || this.incomplete + this.reader.held <= MAX_OVER_BUDGET || !this.share.isOverBudget())
      return;
    // The message may never become complete.
    this.log.warn('a client was cut off: its organization has too many bytes under way');
    this.close('rate_limited');
    this.pipe.cut();
  }

  receive(data: Buffer): void {
    this.incomplete = Math.max(0, this.incomplete - data.length - MESSAGE_HEAD);
    this.unread += 1;
    this.share.work(this.read(data));
    this.isBehind = this.unread > 0;
    this.regulate();
  }

  private *read(data: Buffer): Generator {
    try {
      for (const envelope of this.reader.push(data)) {
        if (this.closed) break;
        this.dispatch(envelope);
        yield;
      }
    } catch (error) {
      const isProtocol = error instanceof ProtocolError;
      // The connection alone fails: nobody above catches an error.
      if (!isProtocol) this.log.error({ err: error }, 'a message of a client could not be handled');
      this.fail(0, 'protocol_error', isProtocol ? error.message : 'the message could not be handled');
      this.close('protocol_error');
    }
    this.unread -= 1;
    this.isBehind &&= this.unread > 0;
    this.regulate();
  }

  send(id: number, type: string, payload: object, sent: () => void = () => undefined): void {
    this.transmit(encodeEnvelope(id, 0, type, payload), sent);
  }

  finish(id: number, type: string, payload: object): void {
    this.sessions.delete(id);
    this.transmit(encodeEnvelope(id, TERMINAL, type, payload));
  }

  window(most: number): number {
    const share = Math.floor(MAX_UNSENT / (this.sessions.size + 1));
    return Math.min(most, Math.max(share, MIN_WINDOW));
  }

  hold(bytes: number): () => void {
    const held = bytes + MESSAGE_COST;
    this.waiting += held;
    this.regulate();
    return () => {
      this.waiting -= held;
      this.regulate();
    };
  }

  /** The client has left, its key has been revoked, the sandbox has ended, or the service stops. */
  close(reason: string): void {
    if (this.closed) return;
    this.closed = true;
    for (const session of this.sessions.values()) session.abandon(reason);
    this.sessions.clear();
    this.incomplete = 0;
    this.reader.clear();
    this.regulate();
    this.files.end();
    this.recorder.close(reason);
    this.pipe.close();
  }

  private transmit(frame: Buffer, sent: () => void = () => undefined): void {
    if (this.closed) return;
    this.unsent += frame.length;
    this.regulate();
    this.pipe.send(frame, () => {
      this.unsent -= frame.length;
      this.regulate();
      sent();
    });
  }

  /** Resolves when the client has taken most of its answers. */
  private async room(): Promise<void> {
    while (this.unsent > MAX_UNSENT && !this.closed) {
      await new Promise<void>((resolve) => this.drained.push(resolve));
    }
  }

  /** Reads from the client only while neither side has too many bytes waiting. */
  private regulate(): void {
    this.count();
    const isOver = this.share.isOverBudget();
    const [mostWaiting, mostUnsent] = isOver ? [MAX_OVER_BUDGET, MAX_OVER_BUDGET] : [MAX_WAITING, MAX_UNSENT];
    const isFull = !this.closed && (this.isBehind || this.waiting > mostWaiting || this.unsent > mostUnsent);
    if (this.closed || this.unsent <= MAX_UNSENT) for (const resolve of this.drained.splice(0)) resolve();
    if (isFull === this.paused) return;
    this.paused = isFull;
    if (isFull) this.pipe.pause();
    else this.pipe.resume();
  }

  private count(): void {
    const bytes = this.closed ? 0 : this.incomplete + this.reader.held + this.waiting + this.unsent;
    this.share.hold(bytes - this.counted);
    this.counted = bytes;
  }

  private dispatch(envelope: Envelope): void {
    const { id, type, flags } = envelope;
    if (isRequest(type) !== (flags === SESSION_START) && !WITHOUT_SESSION.has(type)) {
      return this.fail(id, 'invalid_flags', `a message of this type cannot have the flags ${flags}`, type);
    }
    try {
      const session = this.sessions.get(id);
      if (session) return session.receive(type, envelope);
      const made = this.make(envelope);
      // A late message of a session that has ended, such as the end of an input that nobody reads, is dropped.
      if (made) this.sessions.set(id, made);
    } catch (error) {
      if (!(error instanceof BadPayload)) throw error;
      this.refuse(envelope, 'bad_args', error.message);
    }
  }

  private make(envelope: Envelope): Session | undefined {
    const { id, type } = envelope;
    if (isRequest(type)) {
      if (this.sessions.size >= MAX_SESSIONS) {
        this.refuse(envelope, 'resource_limit', `the connection has ${MAX_SESSIONS} sessions already`);
        return undefined;
      }
      if (envelope.size > MAX_REQUEST) {
        throw new BadPayload(`the request has more than ${MAX_REQUEST} bytes`);
      }
    }
    switch (type) {
      case 'core.exec.request':
        return new ExecSession(this, id, envelope);
      case 'core.fs.request':
        return new FileSession(this, id, envelope);
      case 'core.tcp.connect':
        return new TcpSession(this, id, envelope);
      case 'core.ping':
        this.finish(id, 'core.pong', {});
        return undefined;
      case 'core.touch':
        this.recorder.touch();
        this.finish(id, 'core.touched', {});
        return undefined;
      default:
        return undefined;
    }
  }

  private refuse({ id, type, payload }: Envelope, kind: string, reason: string): void {
    if (type === 'core.exec.request') {
      const program = payload.get('cmd');
      const message = `spawn "${typeof program === 'string' ? program.slice(0, MAX_SHOWN) : ''}": ${reason}`;
      this.finish(id, 'core.exec.failed', { kind, errno: null, errno_name: null, message, stage: null });
    } else if (type === 'core.fs.request') {
      this.finish(id, 'core.fs.response', { ok: false, error: reason, data: null });
    } else if (type === 'core.tcp.connect') this.finish(id, 'core.tcp.failed', { error: reason });
    else this.fail(id, 'invalid_payload', reason, type);
  }

  /** The session of that id continues, if there is one. */
  private fail(id: number, kind: string, message: string, offendingType: string | null = null): void {
    const shown = offendingType?.slice(0, MAX_SHOWN) ?? null;
    this.transmit(encodeEnvelope(id, TERMINAL, 'core.error', { kind, message, offending_type: shown }));
  }
}

const MAX_SHOWN = 100;
/** The messages with an answer and no session. Their flags do not matter. */
const WITHOUT_SESSION = new Set(['core.ping', 'core.touch', 'core.shutdown']);

function isRequest(type: string): boolean {
  return type === 'core.exec.request' || type === 'core.fs.request' || type === 'core.tcp.connect';
}
