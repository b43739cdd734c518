import { Buffer } from 'node:buffer';
import { randomBytes } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { Duplex } from 'node:stream';
import { GuestAgent } from '../../guest/agent.js';
import type { CommandDefaults } from '../../guest/command.js';
import { HANDSHAKE, LIMIT } from '../../guest/protocol.js';

/** The machine may still boot, or an earlier client may hold the port. */
const LONGEST_WAIT_MS = 60_000;
/** The bytes of an earlier agent that may be before the answer. A hostile guest sends more. */
const MAX_LEFTOVERS = 16 * 1024 * 1024;

/**
 * Starts an agent through the port of a virtual machine. `socketPath`: of the monitor, which serves one client at a
 * time. Rejects when the sandbox has ended, or does not answer.
 */
export async function connectAgent(socketPath: string, defaults: CommandDefaults): Promise<GuestAgent> {
  const socket = connect(socketPath);
  // The stream reports it to the agent.
  socket.on('error', () => undefined);
  const late = setTimeout(() => socket.destroy(), LONGEST_WAIT_MS);
  try {
    const agent = new GuestAgent(await openSession(socket), defaults);
    await agent.opened();
    return agent;
  } catch (error) {
    socket.destroy();
    throw error;
  } finally {
    clearTimeout(late);
  }
}

/** Sends the hello of `HANDSHAKE`, and drops everything before the answer. */
async function openSession(socket: Socket): Promise<Duplex> {
  const key = randomBytes(LIMIT.sessionKey);
  const [hello, welcome, refusal] = [HANDSHAKE.hello, HANDSHAKE.welcome, HANDSHAKE.refusal].map((text) =>
    Buffer.concat([Buffer.from(text), key]),
  ) as [Buffer, Buffer, Buffer];
  const copy = key.map((byte, at) => byte ^ hello[at]!);
  socket.write(Buffer.concat([hello, copy]));
  let kept: Buffer = Buffer.alloc(0);
  let dropped = 0;
  for await (const chunk of socket.iterator({ destroyOnReturn: false }) as AsyncIterable<Buffer>) {
    const bytes = Buffer.concat([kept, chunk]);
    const at = bytes.indexOf(welcome);
    if (at >= 0) return new SessionStream(socket, key, refusal, bytes.subarray(at + welcome.length));
    if (bytes.includes(refusal)) throw new Error('the sandbox has stopped');
    kept = bytes.subarray(-welcome.length);
    dropped += chunk.length;
    if (dropped > MAX_LEFTOVERS) break;
  }
  throw new Error('the machine of the sandbox gives no answer on the port of the agent');
}

/** The frames of one session. Each chunk that is written is one frame. */
class SessionStream extends Duplex {
  private readonly mark: Buffer;
  private tail: Buffer;

  /** `ending`: the bytes behind the last ones of the agent. */
  constructor(
    private readonly socket: Socket,
    key: Buffer,
    private readonly ending: Buffer,
    first: Buffer,
  ) {
    super();
    this.mark = key.subarray(0, LIMIT.sessionMark);
    this.tail = Buffer.alloc(0);
    socket.on('data', (chunk: Buffer) => this.pass(chunk));
    socket.on('close', () => this.push(null));
    if (first.length > 0) this.pass(first);
  }

  override _read(): void {
    this.socket.resume();
  }

  override _write(frame: Buffer, _encoding: string, done: (error?: Error | null) => void): void {
    this.socket.cork();
    this.socket.write(frame);
    this.socket.write(this.mark, done);
    this.socket.uncork();
  }

  override _destroy(error: Error | null, done: (error?: Error | null) => void): void {
    this.socket.destroy();
    done(error);
  }

  private pass(chunk: Buffer): void {
    if (!this.push(chunk)) this.socket.pause();
    const { length } = this.ending;
    this.tail = chunk.length >= length ? chunk : Buffer.concat([this.tail, chunk]).subarray(-length);
    // The agent has ended. Its last frame may be incomplete.
    if (this.tail.subarray(-length).equals(this.ending)) this.destroy();
  }
}
