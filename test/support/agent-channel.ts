import { decode, encode } from 'cborg';
import { WebSocket } from 'ws';
import type { Client } from './client.js';
import { until } from './polling.js';

/** The flag of the first message of a session. */
const START = 2;

/** A message of the channel. */
export interface Frame {
  id: number;
  flags: number;
  type: string;
  payload: any;
}

interface ExecOptions {
  args?: string[];
  env?: string[];
  user?: string;
  cwd?: string;
  tty?: { rows: number; cols: number };
}

/** A client of the agent channel, written without the code of the service. */
export class AgentClient {
  readonly frames: Frame[] = [];
  /** The code of the close, once the channel is closed. */
  closed: number | undefined;
  private rest = Buffer.alloc(0);
  private greeted = false;
  private nextId = 1;

  private constructor(readonly socket: WebSocket) {
    socket.on('message', (data: Buffer) => this.read(data));
    socket.on('close', (code) => (this.closed = code));
    socket.on('error', () => undefined);
  }

  /** Rejects with the status of a refusal. */
  static async open(
    { url, key }: Pick<Client, 'url' | 'key'>,
    sandboxId: string,
    { headers = {}, localAddress }: { headers?: Record<string, string>; localAddress?: string } = {},
  ): Promise<AgentClient> {
    const socket = new WebSocket(`${url.replace('http', 'ws')}/v1/sandboxes/${sandboxId}/agent`, {
      headers: { authorization: `Bearer ${key}`, ...headers },
      ...(localAddress === undefined ? {} : { localAddress }),
    });
    const client = new AgentClient(socket);
    await new Promise<void>((resolve, reject) => {
      socket.once('open', resolve);
      socket.once('error', reject);
      socket.once('unexpected-response', (_request, response) => {
        let text = '';
        response.on('data', (chunk) => (text += String(chunk)));
        response.on('end', () => reject(new Refusal(response.statusCode!, text)));
      });
    });
    await client.next(({ type }) => type === 'core.ready');
    return client;
  }

  send(id: number, type: string, payload: object, flags = 0): void {
    const body = encode({ v: 7, t: type, p: encode(payload) });
    const head = Buffer.alloc(9);
    head.writeUInt32BE(5 + body.length, 0);
    head.writeUInt32BE(id, 4);
    head.writeUInt8(flags, 8);
    this.socket.send(Buffer.concat([head, body]));
  }

  /** Starts a command, and returns its id. */
  exec(cmd: string, { args = [], env = [], user, cwd, tty }: ExecOptions = {}): number {
    const id = this.nextId++;
    const request = {
      cmd,
      args,
      env,
      user: user ?? null,
      cwd: cwd ?? null,
      tty: tty !== undefined,
      rlimits: [],
    };
    this.send(id, 'core.exec.request', { ...request, rows: tty?.rows ?? 24, cols: tty?.cols ?? 80 }, START);
    return id;
  }

  /** Runs a command to its end. */
  async run(cmd: string, ...args: string[]): Promise<{ code: number | undefined; stdout: string }> {
    const id = this.exec(cmd, { args });
    const { payload } = await this.next((frame) => frame.id === id && frame.flags === 1);
    return { code: payload.code, stdout: this.output(id) };
  }

  /** Does one operation on files; its answer. */
  async file(op: object): Promise<any> {
    const id = this.nextId++;
    this.send(id, 'core.fs.request', { op }, START);
    return (await this.next((frame) => frame.id === id && frame.flags === 1)).payload;
  }

  output(id: number, stream = 'stdout'): string {
    const parts = this.frames.filter((frame) => frame.id === id && frame.type === `core.exec.${stream}`);
    return Buffer.concat(parts.map(({ payload }) => payload.data)).toString();
  }

  /** The first message, also of those that have arrived, that is wanted. */
  async next(wanted: (frame: Frame) => boolean): Promise<Frame> {
    const found = await until(
      async () => this.frames.find(wanted) ?? this.closed,
      (frame) => frame !== undefined,
    );
    if (typeof found !== 'object') throw new Error(`the channel closed with ${found}`);
    return found;
  }

  /** Reads nothing more, so no ping is answered, as with a machine that lost its power. */
  fallSilent(): void {
    this.socket.pause();
  }

  async untilClosed(): Promise<number> {
    const code = await until(
      async () => this.closed,
      (closed) => closed !== undefined,
    );
    return code!;
  }

  private read(data: Buffer): void {
    this.rest = Buffer.concat([this.rest, data]);
    // The range of ids, without a length.
    if (!this.greeted && this.rest.length >= 8) {
      this.greeted = true;
      this.rest = this.rest.subarray(8);
    }
    while (this.greeted && this.rest.length >= 4) {
      const end = 4 + this.rest.readUInt32BE(0);
      if (this.rest.length < end) return;
      const { t, p } = decode(this.rest.subarray(9, end)) as { t: string; p: Uint8Array };
      const [id, flags] = [this.rest.readUInt32BE(4), this.rest.readUInt8(8)];
      this.frames.push({ id, flags, type: t, payload: decode(p) });
      this.rest = this.rest.subarray(end);
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
