import type { Buffer } from 'node:buffer';
import { Duplex } from 'node:stream';
import { errnoMessage, errnoOf } from '../../guest/errno.js';
import type { Connection, Guest } from '../../guest/guest.js';
import { ApiError } from '../../http/errors.js';

/** Nothing listens on the port. */
export class PortRefusedError extends Error {
  constructor(readonly port: number) {
    super(`nothing listens on port ${port} of the sandbox: start the server there first`);
  }
}

/** The agent has a place for each connection and command, and all are taken. */
export class PortsFullError extends ApiError {
  constructor() {
    const message = 'the sandbox has too many open connections and commands: close some, or try again';
    super('rate_limited', message, null, { headers: { 'retry-after': '1' } });
  }
}

/** A server that listens on one of them only is found too. */
const LOOPBACK = ['127.0.0.1', '::1'] as const;
const FULL = errnoMessage(errnoOf('EAGAIN'));
const REFUSED = errnoMessage(errnoOf('ECONNREFUSED'));

/**
 * Opens a stream of bytes to a port on the loopback addresses of a sandbox. Throws PortRefusedError, or an error with
 * the words of the sandbox's kernel. `signal` ends the attempt, and later the stream. `touch` is called for every piece
 * of data: the sandbox is not idle.
 */
export async function openGuestStream(
  guest: Guest,
  { port, signal, touch }: { port: number; signal: AbortSignal; touch: () => void },
): Promise<Duplex> {
  let failure: unknown;
  for (const address of LOOPBACK) {
    try {
      return await GuestStream.open(guest, { address, port, signal, touch });
    } catch (error) {
      // A sandbox without IPv6 has another word for the second address.
      failure ??= error;
      if (!(error instanceof PortRefusedError)) break;
    }
  }
  throw failure;
}

interface Target {
  address: string;
  port: number;
  signal: AbortSignal;
  touch: () => void;
}

/** A connection in a sandbox as a stream of Node. Either side may end its direction alone. */
class GuestStream extends Duplex {
  private readonly connection: Connection;
  /** Bytes in the buffer of this stream that the sandbox may not replace by others yet. */
  private ungranted = 0;
  private isClosed = false;
  private readonly touch: () => void;
  private settle: { resolve: () => void; reject: (error: Error) => void } | undefined;

  /** Resolves when the connection is open. */
  static async open(guest: Guest, target: Target): Promise<GuestStream> {
    target.signal.throwIfAborted();
    let stream: GuestStream;
    await new Promise<void>((resolve, reject) => {
      stream = new GuestStream(guest, target, { resolve, reject });
    });
    return stream!;
  }

  private constructor(
    guest: Guest,
    { address, port, signal, touch }: Target,
    settle: { resolve: () => void; reject: (error: Error) => void },
  ) {
    super({ allowHalfOpen: true });
    this.settle = settle;
    this.touch = touch;
    // The attempt has its own rejection. A stream without a listener would end the process.
    this.on('error', () => undefined);
    this.connection = guest.connect(address, port, {
      connected: () => {
        this.settle?.resolve();
        this.settle = undefined;
      },
      data: (data) => {
        touch();
        this.ungranted += data.length;
        if (this.push(data)) this.grant();
      },
      ended: () => this.push(null),
      closed: (failure) => {
        this.isClosed = true;
        if (failure === null) this.push(null);
        else this.destroy(failureOf(failure, port));
      },
    });
    const stop = () => this.destroy(signal.reason instanceof Error ? signal.reason : new Error('cut off'));
    signal.addEventListener('abort', stop, { once: true });
    this.once('close', () => signal.removeEventListener('abort', stop));
  }

  override _read(): void {
    this.grant();
  }

  override _write(data: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.touch();
    void this.deliver(data, done);
  }

  override _final(done: () => void): void {
    if (!this.isClosed) this.connection.end();
    done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (!this.isClosed) this.connection.close();
    this.settle?.reject(error ?? new Error('the connection was closed'));
    this.settle = undefined;
    done(error);
  }

  private async deliver(data: Buffer, done: (error?: Error | null) => void): Promise<void> {
    const failure = await this.connection.write(data).catch((error: Error) => error);
    done(failure ?? null);
  }

  private grant(): void {
    const bytes = this.ungranted;
    this.ungranted = 0;
    if (bytes > 0 && !this.isClosed) this.connection.grant(bytes);
  }
}

function failureOf(words: string, port: number): Error {
  if (words === REFUSED) return new PortRefusedError(port);
  return words === FULL ? new PortsFullError() : new Error(words);
}
