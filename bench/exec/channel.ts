import { once } from 'node:events';
import { WebSocket } from 'ws';
import { EnvelopeReader, encodeEnvelope, type Envelope } from '../../src/sandboxes/agent/envelope.js';
import type { Outcome, Side } from './side.js';

/** The range of ids that precedes the first frame. */
const PROLOGUE = 8;
/** The official SDK sends files and reads them in pieces of this size. */
const PIECE = Buffer.alloc(3 * 1024 * 1024);
const SESSION_START = 2;
const encodeInput = (data: Buffer) => encodeEnvelope(1, 0, 'core.exec.stdin', { data });
/** Encoded once: the bench measures the service, and not this client. */
const ENCODED_PIECE = encodeInput(PIECE);

/** The service, as the official SDK uses it: one connection for each command. */
export function channelSide(address: string, key: string, sandboxId: string): Side {
  const open = () => ChannelClient.open(address, key, sandboxId);
  return {
    name: 'channel',
    async run(args) {
      const begun = performance.now();
      const client = await open();
      const outcome = await client.run(args, begun);
      await client.close();
      return outcome;
    },
    async send(args, bytes) {
      const client = await open();
      const running = client.run(args, performance.now());
      for (let left = bytes; left > 0; left -= PIECE.length) {
        await client.write(left >= PIECE.length ? ENCODED_PIECE : encodeInput(PIECE.subarray(0, left)));
      }
      await client.write(encodeInput(Buffer.alloc(0)));
      const outcome = await running;
      await client.close();
      return outcome;
    },
  };
}

export class ChannelClient {
  private readonly reader = new EnvelopeReader();
  private toSkip = PROLOGUE;
  private take: (envelope: Envelope) => void = () => undefined;

  private constructor(private readonly socket: WebSocket) {
    socket.on('message', (data: Buffer) => {
      const skipped = Math.min(this.toSkip, data.length);
      this.toSkip -= skipped;
      for (const envelope of this.reader.push(data.subarray(skipped))) this.take(envelope);
    });
  }

  static async open(address: string, key: string, sandboxId: string): Promise<ChannelClient> {
    const socket = new WebSocket(`${address.replace('http', 'ws')}/v1/sandboxes/${sandboxId}/agent`, {
      headers: { authorization: `Bearer ${key}` },
      perMessageDeflate: false,
    });
    const client = new ChannelClient(socket);
    const ready = new Promise<void>((resolve, reject) => {
      client.take = () => resolve();
      socket.on('error', reject);
    });
    await ready;
    return client;
  }

  /** Resolves when the command has exited. */
  async run([cmd = '', ...args]: readonly string[], begun: number): Promise<Outcome> {
    const ended = new Promise<Outcome>((resolve, reject) => {
      const outcome: Outcome = { code: -1, bytes: 0, firstByteMs: 0, ms: 0 };
      this.socket.once('close', () => reject(new Error('the service closed the connection')));
      this.take = ({ type, payload }) => {
        if (type === 'core.exec.stdout') {
          if (outcome.bytes === 0) outcome.firstByteMs = performance.now() - begun;
          outcome.bytes += (payload.get('data') as Uint8Array).length;
        } else if (type === 'core.exec.exited') {
          resolve({ ...outcome, code: payload.get('code') as number, ms: performance.now() - begun });
        } else if (type === 'core.exec.failed') reject(new Error(String(payload.get('message'))));
      };
    });
    await this.start(cmd, args);
    return ended;
  }

  /** Leaves a command running that waits for input. Resolves when the command has answered once. */
  async idle(): Promise<void> {
    const answered = new Promise<void>((resolve) => {
      this.take = ({ type }) => {
        if (type === 'core.exec.stdout') resolve();
      };
    });
    await this.start('cat', []);
    await this.write(encodeInput(Buffer.from('x')));
    await answered;
  }

  private async start(cmd: string, args: readonly string[]): Promise<void> {
    const terminal = { tty: false, rows: 24, cols: 80 };
    const request = { cmd, args, env: [], cwd: '/', user: null, ...terminal, rlimits: [] };
    await this.write(encodeEnvelope(1, SESSION_START, 'core.exec.request', request));
  }

  /** Resolves when the kernel has the bytes. */
  async write(frame: Buffer): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.socket.send(frame, (error) => (error ? reject(error) : resolve()));
    });
  }

  async close(): Promise<void> {
    this.socket.terminate();
    await once(this.socket, 'close');
  }
}
