import { Buffer } from 'node:buffer';
import { isIPv6 } from 'node:net';
import type { Duplex } from 'node:stream';
import { commandReceiver, encodeCommand, failure, type CommandDefaults } from './command.js';
import { errnoMessage } from './errno.js';
import { AgentFiles, IN_BACKGROUND } from './files.js';
import { InputWindow, OutputCredit } from './flow.js';
import type {
  Command,
  CommandListener,
  CommandSpec,
  Connection,
  ConnectionListener,
  Guest,
  GuestFiles,
} from './guest.js';
import { ANSWER, LAYOUT, LIMIT, REQUEST } from './protocol.js';
import { decode, encode, encodeFrame, FrameReader, RequestWriter, sizeOf, type Frame } from './wire.js';

const LAST_CHANNEL = 0xffff_ffff;
/** The requests that may wait for an agent which does not read. */
const MAX_UNSENT = 32 * 1024 * 1024;
/** The memory of a small request, and the cost of a small answer. */
const MIN_COST = 512;
/** Input is sent to the agent in pieces of so many bytes. */
const INPUT_PIECE = 131_072;
const WATCH_MS = 5_000;
/** The agent answers a ping at once. A sandbox may stop it, or use up its processor time. */
const MAX_SILENCES = 5;
/** The pings that a guest may leave without an answer while it sends other frames. */
const MAX_PINGS = 12;
/** A closed channel ends at once, unless the guest holds the answer back. */
const CLOSE_MS = 30_000;
/** The frames that nobody waits for, in bytes within `WATCH_MS`. */
const MAX_UNWANTED = 4 * 1024 * 1024;
const EMPTY: Buffer = Buffer.alloc(0);
const DONE_BYTES = sizeOf(LAYOUT.done);
const STOPPED = 'the sandbox has stopped';

/** The agent as seen from outside: one stream carries every command, file operation and connection of a sandbox. */
export class GuestAgent implements Guest {
  private readonly ended = new AbortController();
  private readonly channels = new Map<number, Receiver>();
  private readonly owners = new Set<number>();
  private readonly reader = new FrameReader();
  /** That of the agent itself, once it answers. */
  environment: readonly string[] = [];
  private readonly ready = pending<void>();
  private readonly watch = setInterval(() => this.checkAnswers(), WATCH_MS).unref();
  private features = 0;
  private next = 1;
  private silences = 0;
  private readonly pings = { sent: 0, answered: 0 };
  private unsent = 0;
  private unwanted = 0;

  /** `stream`: the standard input and output of the agent, without the frames of an engine. */
  constructor(
    private readonly stream: Duplex,
    private readonly defaults: CommandDefaults,
  ) {
    this.ready.promise.catch(() => undefined);
    this.channels.set(READY_CHANNEL, {
      gone: () => this.ready.reject(new Error('the agent ended before it was ready')),
      frame: ({ type, payload }) => {
        if (type !== ANSWER.ready) return false;
        this.features = decode(LAYOUT.ready, payload).features;
        const environment = payload.toString('utf8', 1).split('\0').slice(0, -1);
        // Each command walks through them.
        if (environment.length > LIMIT.texts)
          throw new RangeError('the environment of the guest is too long');
        this.environment = environment;
        this.channels.delete(READY_CHANNEL);
        this.ready.resolve();
        return true;
      },
    });
    stream.on('data', (chunk: Buffer) => this.take(chunk));
    for (const event of ['end', 'close', 'error']) stream.on(event, () => this.close());
  }

  get gone(): AbortSignal {
    return this.ended.signal;
  }

  /** Resolves when the agent answers. Rejects when it ends before. */
  async opened(): Promise<void> {
    await this.ready.promise;
  }

  exec(command: CommandSpec, listener: CommandListener): Command {
    const spec = encodeCommand(command, this.defaults, this.features);
    const refusal = this.gone.aborted ? failure('other', null, STOPPED) : spec;
    if ('kind' in refusal) {
      queueMicrotask(() => listener.failed(refusal));
      return IDLE;
    }
    const channel = this.open(command.credit, commandReceiver(command, this.defaults, listener), () =>
      listener.failed(failure('other', null, STOPPED)),
    );
    channel.send(REQUEST.exec, refusal.bytes);
    return {
      ...channel,
      resize: (rows, cols) => channel.send(REQUEST.resize, encode(LAYOUT.resize, { rows, cols })),
      signal: (number) => channel.send(REQUEST.signal, encode(LAYOUT.signal, { number: number & 0xff })),
    };
  }

  connect(address: string, port: number, listener: ConnectionListener): Connection {
    if (this.gone.aborted) {
      queueMicrotask(() => listener.closed(STOPPED));
      return IDLE;
    }
    const receive = ({ type, payload }: Frame) => {
      if (type === ANSWER.connected) listener.connected();
      else if (type === ANSWER.stdout) listener.data(payload);
      else if (type === ANSWER.ended) listener.ended();
      else if (type === ANSWER.failed) listener.closed(errnoMessage(decode(LAYOUT.failed, payload).errno));
      else if (type === ANSWER.closed) listener.closed(null);
      return type === ANSWER.failed || type === ANSWER.closed;
    };
    const channel = this.open(LIMIT.inputWindow, receive, () => listener.closed(STOPPED));
    const [family, bytes] = isIPv6(address) ? [6, ipv6Bytes(address)] : [4, ipv4Bytes(address)];
    const request = new RequestWriter()
      .fields(LAYOUT.connect, { credit: LIMIT.inputWindow, family, port })
      .bytes(bytes);
    channel.send(REQUEST.connect, request.end());
    return channel;
  }

  files(): GuestFiles {
    const owner = this.number();
    this.owners.add(owner);
    return new AgentFiles(owner, {
      request: (request) => this.operate(owner, request),
      end: () => {
        if (this.owners.delete(owner)) this.send(owner, REQUEST.endOwner);
      },
    });
  }

  close(): void {
    if (this.gone.aborted) return;
    clearInterval(this.watch);
    this.ended.abort();
    this.stream.destroy();
    const open = [...this.channels.values()];
    this.channels.clear();
    for (const { gone } of open) gone();
  }

  /** Sends a file operation. Resolves with its error number and its data. */
  private async operate(owner: number, request: Buffer): Promise<{ errno: number; data: Buffer }> {
    if (this.gone.aborted) throw new Error(STOPPED);
    if (!this.owners.has(owner)) throw new Error('the connection to the files has ended');
    const { promise, resolve, reject } = pending<{ errno: number; data: Buffer }>();
    const channel = this.number();
    this.channels.set(channel, {
      ...(IN_BACKGROUND.has(request.readUInt8(0)) ? {} : { pingsBefore: this.pings.sent }),
      gone: () => reject(new Error(STOPPED)),
      frame: ({ type, payload }) => {
        if (type !== ANSWER.done) return false;
        this.channels.delete(channel);
        resolve({ errno: decode(LAYOUT.done, payload).errno, data: payload.subarray(DONE_BYTES) });
        return true;
      },
    });
    this.send(channel, REQUEST.files, request);
    return promise;
  }

  /** `receive` returns whether the frame was the last one of the channel. */
  private open(
    initialCredit: number,
    receive: (frame: Frame) => boolean,
    gone: () => void,
  ): Connection & { send(type: number, payload?: Buffer): void } {
    const number = this.number();
    const input = new InputWindow();
    const credit = new OutputCredit(initialCredit);
    const seen = new Set<number>();
    let closing: NodeJS.Timeout | undefined;
    const release = () => {
      clearTimeout(closing);
      input.close();
    };
    this.channels.set(number, {
      gone: () => {
        release();
        gone();
      },
      frame: (frame) => {
        const { type, payload } = frame;
        if (type === ANSWER.consumed) return input.giveBack(decode(LAYOUT.consumed, payload).bytes);
        if (type === ANSWER.stdout || type === ANSWER.stderr) credit.spend(payload.length);
        else if (seen.has(type)) return false;
        else seen.add(type);
        if (receive(frame)) {
          this.channels.delete(number);
          release();
        }
        return true;
      },
    });
    const send = (type: number, payload?: Buffer) => {
      if (this.channels.has(number)) this.send(number, type, payload);
    };
    return {
      send,
      write: async (data) => {
        for (let at = 0; at < data.length;) {
          const taken = await input.take(Math.min(data.length - at, INPUT_PIECE));
          if (taken === 0) return;
          send(REQUEST.input, data.subarray(at, at + taken));
          at += taken;
        }
      },
      end: () => send(REQUEST.input),
      grant: (bytes) => send(REQUEST.credit, encode(LAYOUT.credit, { bytes: credit.grant(bytes) })),
      close: () => {
        send(REQUEST.close);
        if (this.channels.has(number)) closing ??= setTimeout(() => this.close(), CLOSE_MS).unref();
      },
    };
  }

  private take(chunk: Buffer): void {
    this.silences = 0;
    try {
      for (const frame of this.reader.push(chunk)) {
        const isWanted = isPong(frame)
          ? this.takePong()
          : (this.channels.get(frame.channel)?.frame(frame) ?? false);
        const cost = MIN_COST + frame.payload.length;
        this.unwanted = isWanted ? Math.max(0, this.unwanted - cost) : this.unwanted + cost;
        if (this.unwanted > MAX_UNWANTED)
          throw new RangeError('the guest sent too much that nobody asked for');
      }
    } catch {
      // The guest broke the protocol: nothing that follows can be understood.
      this.close();
    }
  }

  /** The agent answers in order: with a pong, each file operation that was sent before the ping has its answer. */
  private takePong(): boolean {
    if (this.pings.answered === this.pings.sent) return false;
    const answered = (this.pings.answered += 1);
    for (const { pingsBefore = Infinity } of this.channels.values())
      if (pingsBefore < answered) throw new RangeError('the guest left a file operation without an answer');
    return true;
  }

  private send(channel: number, type: number, payload: Buffer = EMPTY): void {
    if (this.gone.aborted) return;
    const frame = encodeFrame(channel, type, payload);
    const cost = Math.max(frame.length, MIN_COST);
    this.unsent += cost;
    this.stream.write(frame, () => (this.unsent -= cost));
    if (this.unsent > MAX_UNSENT) this.close();
  }

  /** Closes the stream when somebody waits for an agent that is silent, or that answers others alone. */
  private checkAnswers(): void {
    this.unwanted = 0;
    if (this.channels.size === 0) this.silences = 0;
    else if (this.silences++ === 0) {
      this.pings.sent += 1;
      this.send(READY_CHANNEL, REQUEST.ping);
      if (this.pings.sent - this.pings.answered > MAX_PINGS) this.close();
    } else if (this.silences > MAX_SILENCES) this.close();
  }

  private number(): number {
    do this.next = this.next === LAST_CHANNEL ? 1 : this.next + 1;
    while (this.channels.has(this.next) || this.owners.has(this.next));
    return this.next;
  }
}

interface Receiver {
  /** The pings before a file operation that the agent answers at once. */
  pingsBefore?: number;
  /** Returns whether the channel has use for the frame. */
  frame: (frame: Frame) => boolean;
  /** The stream to the agent has ended. */
  gone: () => void;
}

const READY_CHANNEL = 0;

function isPong({ channel, type }: Frame): boolean {
  return channel === READY_CHANNEL && type === ANSWER.pong;
}

const IDLE: Command = {
  write: () => Promise.resolve(),
  end: () => undefined,
  grant: () => undefined,
  close: () => undefined,
  resize: () => undefined,
  signal: () => undefined,
};

/** `Promise.withResolvers`, which Node 20 lacks. */
function pending<T>() {
  let resolve!: (value: T) => void;
  let reject!: (reason: Error) => void;
  const promise = new Promise<T>((ok, failed) => {
    resolve = ok;
    reject = failed;
  });
  return { promise, resolve, reject };
}

function ipv4Bytes(address: string): Buffer {
  return Buffer.from(address.split('.').map(Number));
}

function ipv6Bytes(address: string): Buffer {
  // The host of a URL has no IPv4 part.
  const [head = '', tail] = new URL(`http://[${address}]`).hostname.slice(1, -1).split('::');
  const words = (text: string) =>
    text === '' ? [] : text.split(':').map((word) => Number.parseInt(word, 16));
  const [first, last] = [words(head), words(tail ?? '')];
  const all = [...first, ...Array<number>(8 - first.length - last.length).fill(0), ...last];
  return Buffer.from(all.flatMap((word) => [word >> 8, word & 0xff]));
}
