import { decode } from 'cborg';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { WebSocket } from 'ws';
import { encodeEnvelope } from '../../src/sandboxes/agent/envelope.js';
import { sleep } from '../../src/lib/sleep.js';
import type { Client } from './client.js';

const PATIENCE_MS = 300_000;
const START = 2;

export interface Message {
  id: number;
  flags: number;
  type: string;
  payload: any;
}

/** A client of the agent channel made by hand. */
export class AgentClient {
  /** Every message that has arrived and was not taken. */
  readonly messages: Message[] = [];
  /** The first bytes after the handshake: the range of ids. */
  prologue: Buffer | undefined;
  closed: { code: number } | undefined;
  bytes = 0;
  private buffered: Buffer = Buffer.alloc(0);
  private nextId = 1;

  private constructor(readonly socket: WebSocket) {
    socket.on('message', (data: Buffer) => this.take(data));
    socket.on('close', (code) => (this.closed = { code }));
    socket.on('error', () => undefined);
  }

  /** Resolves when the channel is ready. Rejects with a Refusal when it is not opened. */
  static async open(
    { url, key }: Pick<Client, 'url' | 'key'>,
    sandboxId: string,
    { userAgent, ...tls }: { ca?: string; userAgent?: string } = {},
  ): Promise<AgentClient> {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/v1/sandboxes/${sandboxId}/agent`, {
      headers: {
        authorization: `Bearer ${key}`,
        ...(userAgent === undefined ? {} : { 'user-agent': userAgent }),
      },
      perMessageDeflate: false,
      ...tls,
    });
    const client = new AgentClient(socket);
    await new Promise<void>((resolve, reject) => {
      socket.once('open', resolve);
      socket.once('error', reject);
      socket.once('unexpected-response', (_request, response) => {
        text(response).then((body) => reject(new Refusal(response.statusCode!, body)), reject);
      });
    });
    await client.next(0);
    return client;
  }

  id(): number {
    return this.nextId++;
  }

  send(id: number, type: string, payload: object, flags = 0): void {
    this.write(encodeEnvelope(id, flags, type, payload));
  }

  write(bytes: Buffer): void {
    this.socket.send(bytes);
  }

  /** Starts a session and returns its id. */
  start(type: string, payload: object): number {
    const id = this.id();
    this.send(id, type, payload, START);
    return id;
  }

  exec(cmd: string, args: readonly string[] = [], more: object = {}): number {
    const rest = { env: [], cwd: null, user: null, tty: false, rows: 24, cols: 80, rlimits: [] };
    return this.start('core.exec.request', { cmd, args, ...rest, ...more });
  }

  sh(script: string, more: object = {}): number {
    return this.exec('sh', ['-c', script], more);
  }

  stdin(id: number, data: string | Uint8Array = ''): void {
    this.send(id, 'core.exec.stdin', { data: Buffer.from(data) });
  }

  /** The answer to a file operation. */
  async fs(operation: object | string, fields?: object): Promise<any> {
    const op = typeof operation === 'string' ? { [operation]: fields } : operation;
    return (await this.next(this.start('core.fs.request', { op }), 'core.fs.response')).payload;
  }

  /** Takes the next message of a session, of that type or of any. */
  async next(id: number, type?: string): Promise<Message> {
    const deadline = Date.now() + PATIENCE_MS;
    for (;;) {
      const at = this.messages.findIndex((m) => m.id === id && (type === undefined || m.type === type));
      if (at !== -1) return this.messages.splice(at, 1)[0]!;
      if (this.closed || Date.now() > deadline) {
        const seen = JSON.stringify(this.messages.map((m) => [m.id, m.type]).slice(0, 20));
        throw new Error(`no ${type ?? 'message'} for ${id}; closed: ${this.closed?.code}; seen: ${seen}`);
      }
      await sleep(2);
    }
  }

  /** The messages of a session up to the last one. */
  async all(id: number): Promise<Message[]> {
    const messages: Message[] = [];
    for (;;) {
      const message = await this.next(id);
      messages.push(message);
      if (message.flags === 1) return messages;
    }
  }

  /** The output of a command, and its end. */
  async outcome(id: number): Promise<{ stdout: string; stderr: string; last: Message }> {
    const messages = await this.all(id);
    const output = (type: string) =>
      Buffer.concat(
        messages.filter((m) => m.type === type).map(({ payload }) => payload.data as Buffer),
      ).toString();
    return { stdout: output('core.exec.stdout'), stderr: output('core.exec.stderr'), last: messages.at(-1)! };
  }

  /** Runs a command to its end. */
  async run(cmd: string, ...args: string[]): Promise<{ code: number | undefined; stdout: string }> {
    const { stdout, last } = await this.outcome(this.exec(cmd, args));
    return { code: last.payload.code, stdout };
  }

  /** Reads nothing more, so no ping is answered, as with a machine that lost its power. */
  fallSilent(): void {
    this.socket.pause();
  }

  close(): void {
    this.socket.terminate();
  }

  async untilClosed(): Promise<void> {
    if (!this.closed) await once(this.socket, 'close', { signal: AbortSignal.timeout(PATIENCE_MS) });
  }

  private take(data: Buffer): void {
    this.bytes += data.length;
    this.buffered = this.buffered.length === 0 ? data : Buffer.concat([this.buffered, data]);
    if (!this.prologue) {
      this.prologue = this.buffered.subarray(0, 8);
      this.buffered = this.buffered.subarray(8);
    }
    while (this.buffered.length >= 4 && this.buffered.length >= 4 + this.buffered.readUInt32BE(0)) {
      const end = 4 + this.buffered.readUInt32BE(0);
      const { t: type, p } = decode(this.buffered.subarray(9, end));
      this.messages.push({
        id: this.buffered.readUInt32BE(4),
        flags: this.buffered.readUInt8(8),
        type,
        payload: decode(p),
      });
      this.buffered = this.buffered.subarray(end);
    }
  }
}

/** The answer to a channel that was not opened. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly text: string,
  ) {
    super(`refused with ${status}: ${text}`);
  }
}
