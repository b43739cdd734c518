import type { Buffer } from 'node:buffer';
import { Duplex, Transform } from 'node:stream';
import { finished } from 'node:stream/promises';
import { WebSocket, type RawData } from 'ws';
import { ApiError } from '../../http/errors.js';
import { MovedAwayError } from '../sessions/forward.js';
import { PortRefusedError, PortsFullError } from './guest-stream.js';
import { NotRunningError } from './not-running.js';

/** A message of text: the port is connected. */
const OPEN = 'open';
/** A message of text: the sender sends nothing more. TLS and close frames cannot end one direction alone. */
const END = 'end';
const NORMAL = 1000;
const CODES = { failed: 4000, refused: 4001, notRunning: 4002, moved: 4003, full: 4004 } as const;
/** A close frame has 125 bytes, of which two are the code. */
const MAX_REASON = 123;
/** Below the longest message that the service takes. */
const PIECE = 256 * 1024;

/** The service ends a WebSocket that is silent for longer, and a client that is not read answers no pings itself. */
const PING_MS = 5_000;
const KEEP_ALIVE_MS = 10_000;

/** Counts the bytes of a connection. */
export interface ByteCounts {
  received(bytes: number): void;
  sent(bytes: number): void;
}

/**
 * The bytes of a port on a WebSocket: binary messages are bytes, and texts are `open` and `end`. A close code from 4000
 * on says why there is no connection.
 */
export class PortSocket extends Duplex {
  private isOpen = false;
  private hasEnded = false;

  constructor(
    private readonly socket: WebSocket,
    private readonly counts: ByteCounts | undefined,
    private readonly port: number,
  ) {
    super({ allowHalfOpen: true });
    // The other end may fail while nobody reads or writes. A stream without a listener would end the process.
    this.on('error', () => undefined);
    socket.on('message', (data, isBinary) => this.receive(data, isBinary));
    socket.on('error', (error) => this.destroy(error));
    socket.on('close', (code, reason) => this.lose(code, reason.toString()));
  }

  /** Tells the other end that the port is connected. */
  sendOpen(): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(OPEN);
  }

  override _read(): void {
    // A WebSocket that is not open yet cannot be resumed.
    if (this.socket.readyState === WebSocket.OPEN) this.socket.resume();
  }

  override _write(data: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.counts?.sent(data.length);
    for (let at = 0; at < data.length; at += PIECE) {
      const isLast = at + PIECE >= data.length;
      const piece = data.subarray(at, at + PIECE);
      this.socket.send(piece, { binary: true }, isLast ? (error) => done(error ?? null) : undefined);
    }
  }

  override _final(done: (error?: Error | null) => void): void {
    if (this.socket.readyState === WebSocket.OPEN) this.socket.send(END, (error) => done(error ?? null));
    else done();
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    if (this.socket.readyState <= WebSocket.OPEN) {
      // A paused WebSocket would never read the answer to its close.
      if (this.socket.readyState === WebSocket.OPEN) this.socket.resume();
      if (error) this.socket.close(...closeOf(error));
      else this.socket.close(NORMAL);
    }
    done(error);
  }

  private receive(data: RawData, isBinary: boolean): void {
    if (isBinary) {
      const bytes = data as Buffer;
      if (this.hasEnded || bytes.length === 0) return;
      this.counts?.received(bytes.length);
      if (!this.push(bytes)) this.socket.pause();
      return;
    }
    const text = (data as Buffer).toString('utf8', 0, 8);
    if (text === END) this.endReading();
    else if (text === OPEN && !this.isOpen) {
      this.isOpen = true;
      this.emit('open');
    }
  }

  private endReading(): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.push(null);
  }

  private lose(code: number, reason: string): void {
    if (code === NORMAL && this.hasEnded) return;
    this.destroy(errorOf(code, reason, this.port));
  }
}

/** Gets the bytes of each chunk. Returns the wait for the next chunk, if any. */
type Moved = (bytes: number) => Promise<void> | undefined;

interface Serving {
  port: number;
  open: () => Promise<Duplex>;
  moved: Moved;
  counts?: ByteCounts;
}

/** Answers a WebSocket with the bytes of the port that `open` opens. Resolves with the failure, or null. */
export async function servePort(socket: WebSocket, { port, open, moved, counts }: Serving): Promise<unknown> {
  const client = new PortSocket(socket, counts, port);
  let stream: Duplex | undefined;
  try {
    stream = await open();
    client.sendOpen();
    await joinStreams(client, stream, moved);
    return null;
  } catch (error) {
    stream?.destroy();
    client.destroy(error as Error);
    return error;
  }
}

/**
 * Connects two streams in both directions, until both have ended. Rejects with the first failure of either. A pipeline
 * of Node with the same stream at both ends waits for ever when the other one fails.
 */
export async function joinStreams(one: Duplex, other: Duplex, moved?: Moved): Promise<void> {
  if (moved) one.pipe(inTurns(moved)).pipe(other).pipe(inTurns(moved)).pipe(one);
  else one.pipe(other).pipe(one);
  await Promise.all([finished(one), finished(other)]);
}

function inTurns(moved: Moved): Transform {
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      const pass = () => done(null, chunk);
      const wait = moved(chunk.length);
      if (wait) void wait.then(pass);
      else pass();
    },
  });
}

/** Resolves when the other end has connected the port. Rejects with the errors of `openPort`. */
export async function openPortSocket(
  socket: WebSocket,
  { port, signal }: { port: number; signal: AbortSignal },
): Promise<PortSocket> {
  const stream = new PortSocket(socket, undefined, port);
  socket.once('upgrade', (answer) => answer.socket.setKeepAlive(true, KEEP_ALIVE_MS));
  const pings = setInterval(() => {
    if (socket.readyState === WebSocket.OPEN) socket.ping();
  }, PING_MS).unref();
  socket.once('close', () => clearInterval(pings));
  const stop = () => stream.destroy(signal.reason instanceof Error ? signal.reason : new Error('cut off'));
  signal.addEventListener('abort', stop, { once: true });
  stream.once('close', () => signal.removeEventListener('abort', stop));
  if (signal.aborted) stop();
  await new Promise<void>((resolve, reject) => {
    stream.once('open', resolve);
    stream.once('error', reject);
    stream.once('close', () => reject(new Error('the connection closed before the port was open')));
  });
  return stream;
}

function closeOf(error: Error): [code: number, reason: string] {
  if (error instanceof PortRefusedError) return [CODES.refused, ''];
  if (error instanceof NotRunningError) return [CODES.notRunning, error.status ?? ''];
  if (error instanceof MovedAwayError) return [CODES.moved, ''];
  if (error instanceof PortsFullError) return [CODES.full, cut(error.message)];
  // Other errors may name addresses or files of the service.
  return [CODES.failed, error instanceof ApiError ? cut(error.message) : ''];
}

/** Characters of more than one byte would make the frame too long. */
function cut(text: string): string {
  return text.replace(/[^ -~]/g, '?').slice(0, MAX_REASON);
}

function errorOf(code: number, reason: string, port: number): Error {
  if (code === CODES.refused) return new PortRefusedError(port);
  if (code === CODES.notRunning) return new NotRunningError(reason === '' ? undefined : reason);
  if (code === CODES.full) return new PortsFullError();
  if (code === CODES.moved) return new MovedAwayError();
  return new Error(reason === '' ? 'the connection to the sandbox was cut off' : reason);
}
