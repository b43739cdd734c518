import type { Buffer } from 'node:buffer';
import type { Logger } from 'pino';
import { VERSION } from '../../lib/version.js';
import type { Guest, GuestFiles } from '../../runtimes/guest/guest.js';
import {
  encodeEnvelope,
  EnvelopeReader,
  greeting,
  ProtocolError,
  TERMINAL,
  type Envelope,
} from './envelope.js';
import { ExecSession } from './exec-session.js';
import { FileSession } from './file-session.js';
import { BadPayload } from './payload.js';
import type { Link, Session } from './session.js';
import type { SessionRecorder } from '../sessions/recorder.js';
import { TcpSession } from './tcp-session.js';

/** The sessions of one connection that may be open at once. */
const MAX_SESSIONS = 64;
/** The bytes from a client that may wait for the sandbox. Beyond them the connection is not read. */
const MAX_WAITING = 8 * 1024 * 1024;

/** A byte pipe to a client. */
export interface Pipe {
  /** `sent` is called when the bytes have left the process. */
  send(data: Buffer, sent: () => void): void;
  /** Stops and continues to read from the client. */
  pause(): void;
  resume(): void;
  close(): void;
}

/** The protocol of the official clients on one connection, over the way into one sandbox. */
export class AgentChannel implements Link {
  readonly files: GuestFiles;
  private readonly reader = new EnvelopeReader();
  private readonly sessions = new Map<number, Session>();
  private waiting = 0;
  private closed = false;

  constructor(
    readonly guest: Guest,
    private readonly pipe: Pipe,
    readonly recorder: SessionRecorder,
    readonly log: Logger,
  ) {
    this.files = guest.files();
    pipe.send(greeting(VERSION), () => undefined);
  }

  receive(data: Buffer): void {
    try {
      for (const envelope of this.reader.push(data)) this.dispatch(envelope);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.fail(0, 'protocol_error', error.message);
      this.close('protocol_error');
    }
  }

  send(id: number, type: string, payload: object, sent: () => void = () => undefined): void {
    if (!this.closed) this.pipe.send(encodeEnvelope(id, 0, type, payload), sent);
  }

  finish(id: number, type: string, payload: object): void {
    this.sessions.delete(id);
    if (!this.closed) this.pipe.send(encodeEnvelope(id, TERMINAL, type, payload), () => undefined);
  }

  hold(bytes: number): () => void {
    this.waiting += bytes;
    if (this.waiting > MAX_WAITING) this.pipe.pause();
    return () => {
      this.waiting -= bytes;
      if (this.waiting <= MAX_WAITING) this.pipe.resume();
    };
  }

  /** The client has left, its key has been revoked, the sandbox has ended, or the service stops. */
  close(reason: string): void {
    if (this.closed) return;
    this.closed = true;
    for (const session of this.sessions.values()) session.abandon(reason);
    this.sessions.clear();
    this.files.end();
    this.recorder.close(reason);
    this.pipe.close();
  }

  private dispatch(envelope: Envelope): void {
    const { id, type } = envelope;
    const session = this.sessions.get(id);
    if (session) return session.receive(type, envelope);
    try {
      const made = this.make(envelope);
      // A late message of a session that has ended, such as the end of an input that nobody reads, is dropped.
      if (made) this.sessions.set(id, made);
    } catch (error) {
      if (!(error instanceof BadPayload)) throw error;
      this.refuse(envelope, error.message);
    }
  }

  private make(envelope: Envelope): Session | undefined {
    const { id, type, payload } = envelope;
    const starts = type === 'core.exec.request' || type === 'core.fs.request' || type === 'core.tcp.connect';
    if (starts && this.sessions.size >= MAX_SESSIONS) {
      this.refuse(envelope, `the connection has ${MAX_SESSIONS} sessions already`);
      return undefined;
    }
    switch (type) {
      case 'core.exec.request':
        return new ExecSession(this, id, payload);
      case 'core.fs.request':
        return new FileSession(this, id, payload);
      case 'core.tcp.connect':
        return new TcpSession(this, id, payload);
      case 'core.ping':
        this.finish(id, 'core.pong', {});
        return undefined;
      case 'core.touch':
        this.finish(id, 'core.touched', {});
        return undefined;
      default:
        return undefined;
    }
  }

  private refuse({ id, type }: Envelope, reason: string): void {
    if (type === 'core.exec.request') {
      const failure = { kind: 'bad_args', errno: null, errno_name: null, message: reason, stage: null };
      this.finish(id, 'core.exec.failed', failure);
    } else if (type === 'core.fs.request') {
      this.finish(id, 'core.fs.response', { ok: false, error: reason, data: null });
    } else if (type === 'core.tcp.connect') this.finish(id, 'core.tcp.failed', { error: reason });
    else this.fail(id, 'invalid_payload', reason, type);
  }

  private fail(id: number, kind: string, message: string, offendingType: string | null = null): void {
    this.finish(id, 'core.error', { kind, message, offending_type: offendingType });
  }
}
