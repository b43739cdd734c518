import { Buffer } from 'node:buffer';
import { isIPv6 } from 'node:net';
import type { Duplex } from 'node:stream';
import { errnoMessage, errnoName } from './errno.js';
import { AgentFiles } from './files.js';
import type {
  Command,
  CommandFailure,
  CommandListener,
  CommandSpec,
  Connection,
  ConnectionListener,
  FailureKind,
  Guest,
  GuestFiles,
} from './guest.js';
import { ANSWER, encodeFrame, FrameReader, REQUEST, RequestWriter, type Frame } from './wire.js';

/** The input that the agent keeps for one command or connection. */
const INPUT_WINDOW = 65_536;
const LAST_CHANNEL = 0xffff_ffff;

const RLIMITS: Record<string, number> = {
  ...{ cpu: 0, fsize: 1, data: 2, stack: 3, core: 4, rss: 5, nproc: 6, nofile: 7, memlock: 8, as: 9 },
  ...{ locks: 10, sigpending: 11, msgqueue: 12, nice: 13, rtprio: 14, rttime: 15 },
};

/** The values of the sandbox that a command takes over. */
export interface CommandDefaults {
  /** `NAME=value`. */
  env: readonly string[];
  cwd: string;
  user: string;
}

/** The agent as seen from outside: one stream carries every command, file operation and connection of a sandbox. */
export class GuestAgent implements Guest {
  private readonly ended = new AbortController();
  private readonly channels = new Map<number, (frame: Frame) => void>();
  private readonly reader = new FrameReader();
  private next = 1;
  private readonly ready = pending<void>();

  /** `stream`: the standard input and output of the agent, without the frames of an engine. */
  constructor(
    private readonly stream: Duplex,
    private readonly defaults: CommandDefaults,
  ) {
    this.ready.promise.catch(() => undefined);
    this.channels.set(0, ({ type }) => {
      if (type === ANSWER.ready) this.ready.resolve();
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
    const spec = this.encodeCommand(command);
    if ('kind' in spec) {
      queueMicrotask(() => listener.failed(spec));
      return IDLE;
    }
    const channel = this.open({ failed: (reason) => listener.failed(reason) }, (input) =>
      commandReceiver(command, listener, input),
    );
    channel.send(REQUEST.exec, spec.bytes);
    return {
      ...channel,
      resize: (rows, cols) => channel.send(REQUEST.resize, new RequestWriter().u16(rows).u16(cols).end()),
      signal: (number) => channel.send(REQUEST.signal, new RequestWriter().u8(number & 0xff).end()),
    };
  }

  connect(address: string, port: number, listener: ConnectionListener): Connection {
    const request = new RequestWriter().u32(INPUT_WINDOW);
    if (isIPv6(address)) request.u8(6).u16(port).bytes(ipv6Bytes(address));
    else
      request
        .u8(4)
        .u16(port)
        .bytes(Buffer.from(address.split('.').map(Number)));
    const failed = { failed: () => listener.closed('the sandbox has stopped') };
    const channel = this.open(failed, (input) => ({ type, payload }) => {
      if (type === ANSWER.connected) listener.connected();
      else if (type === ANSWER.stdout) listener.data(payload);
      else if (type === ANSWER.ended) listener.ended();
      else if (type === ANSWER.consumed) input.consumed(readNumber(payload));
      else if (type === ANSWER.failed) listener.closed(errnoMessage(readNumber(payload.subarray(1))));
      else if (type === ANSWER.closed) listener.closed(null);
      return type === ANSWER.failed || type === ANSWER.closed;
    });
    channel.send(REQUEST.connect, request.end());
    return channel;
  }

  files(): GuestFiles {
    const owner = this.number();
    return new AgentFiles(owner, {
      request: async (request) => this.operate(request),
      end: () => this.send(owner, REQUEST.endOwner),
    });
  }

  close(): void {
    if (this.ended.signal.aborted) return;
    this.ended.abort();
    this.ready.reject(new Error('the agent ended before it was ready'));
    this.stream.destroy();
    const open = [...this.channels.values()];
    this.channels.clear();
    for (const receive of open) receive({ channel: 0, type: GONE, payload: EMPTY });
  }

  /** Sends a file operation. Resolves with its error number and its data. */
  private operate(request: Buffer): Promise<{ errno: number; data: Buffer }> {
    const { promise, resolve, reject } = pending<{ errno: number; data: Buffer }>();
    if (this.gone.aborted) reject(new Error('the sandbox has stopped'));
    else {
      const channel = this.number();
      this.channels.set(channel, ({ type, payload }) => {
        if (type === GONE) reject(new Error('the sandbox has stopped'));
        else if (type === ANSWER.done && payload.length >= 4) {
          this.channels.delete(channel);
          resolve({ errno: readNumber(payload), data: payload.subarray(4) });
        }
      });
      this.send(channel, REQUEST.files, request);
    }
    return promise;
  }

  /** `receive` returns whether the frame was the last one of the channel. */
  private open(
    { failed }: { failed: (this: void, failure: CommandFailure) => void },
    makeReceiver: (input: InputWindow) => (frame: Frame) => boolean,
  ): Connection & { send(type: number, payload?: Buffer): void } {
    const number = this.number();
    const input = new InputWindow();
    const receive = makeReceiver(input);
    if (this.gone.aborted) queueMicrotask(() => failed(STOPPED));
    else {
      this.channels.set(number, (frame) => {
        const last = frame.type === GONE || receive(frame);
        if (frame.type === GONE) failed(STOPPED);
        if (!last) return;
        this.channels.delete(number);
        input.close();
      });
    }
    const send = (type: number, payload?: Buffer) => {
      if (this.channels.has(number)) this.send(number, type, payload ?? EMPTY);
    };
    return {
      send,
      write: async (data) => {
        for (let at = 0; at < data.length;) {
          const room = await input.room();
          if (room === 0) return;
          const part = data.subarray(at, at + room);
          input.used(part.length);
          send(REQUEST.input, part);
          at += part.length;
        }
      },
      end: () => send(REQUEST.input),
      grant: (bytes) => send(REQUEST.credit, new RequestWriter().u32(bytes).end()),
      close: () => send(REQUEST.close),
    };
  }

  private take(chunk: Buffer): void {
    try {
      for (const frame of this.reader.push(chunk)) this.channels.get(frame.channel)?.(frame);
    } catch {
      // The guest broke the protocol: nothing that follows can be understood.
      this.close();
    }
  }

  private send(channel: number, type: number, payload: Buffer = EMPTY): void {
    if (!this.gone.aborted) this.stream.write(encodeFrame(channel, type, payload));
  }

  private number(): number {
    do this.next = this.next === LAST_CHANNEL ? 1 : this.next + 1;
    while (this.channels.has(this.next));
    return this.next;
  }

  private encodeCommand(command: CommandSpec): { bytes: Buffer } | CommandFailure {
    const { args, terminal, rlimits, credit } = command;
    const env = [...merged(this.defaults.env, command.env)];
    const limits = rlimits.map(({ resource, ...values }) => ({
      number: RLIMITS[resource.toLowerCase()],
      ...values,
    }));
    if (limits.some(({ number }) => number === undefined) || limits.length > 32) {
      return failure('resource_limit', 22, `a limit of ${args[0]} is not known`);
    }
    if ([...args, ...env, command.cwd ?? '', command.user ?? ''].some((text) => text.includes('\0'))) {
      return failure('bad_args', 22, `spawn "${args[0]}": a NUL character is in its arguments`);
    }
    const request = new RequestWriter()
      .u8(terminal ? 1 : 0)
      .u16(terminal?.rows ?? 0)
      .u16(terminal?.cols ?? 0)
      .u32(credit)
      .u16(Math.min(args.length, 0xffff))
      .u16(Math.min(env.length, 0xffff))
      .u8(limits.length);
    for (const { number, soft, hard } of limits) request.u8(number!).u64(soft).u64(hard);
    request.text(command.user ?? this.defaults.user).text(command.cwd ?? this.defaults.cwd);
    for (const text of [...args, ...env]) request.text(text);
    const bytes = request.end();
    if (args.length + env.length > MAX_TEXTS || bytes.length > MAX_COMMAND_BYTES) {
      return failure('bad_args', 7, `spawn "${args[0]}": ${errnoMessage(7)}`);
    }
    return { bytes };
  }
}

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

const EMPTY: Buffer = Buffer.alloc(0);
/** Not on the wire: the stream to the agent has ended. */
const GONE = -1;
const MAX_TEXTS = 16_384;
const MAX_COMMAND_BYTES = 262_144;
const STOPPED: CommandFailure = failure('other', null, 'the sandbox has stopped');
const IDLE: Command = {
  write: () => Promise.resolve(),
  end: () => undefined,
  grant: () => undefined,
  close: () => undefined,
  resize: () => undefined,
  signal: () => undefined,
};

/** The room for input that the agent has left. */
class InputWindow {
  private left = INPUT_WINDOW;
  private closed = false;
  private waiting: (() => void)[] = [];

  /** Resolves when there is any. 0: the channel is closed. */
  async room(): Promise<number> {
    while (this.left <= 0 && !this.closed) await new Promise<void>((resolve) => this.waiting.push(resolve));
    return this.closed ? 0 : this.left;
  }

  used(bytes: number): void {
    this.left -= bytes;
  }

  consumed(bytes: number): void {
    this.left = Math.min(INPUT_WINDOW, this.left + bytes);
    this.wake();
  }

  close(): void {
    this.closed = true;
    this.wake();
  }

  private wake(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}

function commandReceiver(
  { args, cwd }: CommandSpec,
  listener: CommandListener,
  input: InputWindow,
): (frame: Frame) => boolean {
  return ({ type, payload }) => {
    if (type === ANSWER.started) listener.started(readNumber(payload));
    else if (type === ANSWER.stdout) listener.output('stdout', payload);
    else if (type === ANSWER.stderr) listener.output('stderr', payload);
    else if (type === ANSWER.consumed) input.consumed(readNumber(payload));
    else if (type === ANSWER.inputFailed) listener.inputFailed(readNumber(payload));
    else if (type === ANSWER.exited) listener.exited(readNumber(payload) | 0);
    else if (type === ANSWER.failed) listener.failed(failureOf(args[0], cwd, payload));
    return type === ANSWER.exited || type === ANSWER.failed;
  };
}

/** By the step of the start that failed; see `guest/agent.c`. */
const STEPS: Record<number, FailureKind> = {
  1: 'resource_limit',
  2: 'pty_setup_failed',
  3: 'resource_limit',
  4: 'user_setup_failed',
  5: 'bad_cwd',
  6: 'other',
  7: 'bad_args',
};
const EXEC_STEP = 6;
const EXEC_KINDS: Record<number, FailureKind> = {
  2: 'not_found',
  20: 'not_found',
  13: 'permission_denied',
  1: 'permission_denied',
  8: 'not_executable',
  7: 'bad_args',
  12: 'out_of_memory',
};

function failureOf(program: string, cwd: string | null, payload: Buffer): CommandFailure {
  const step = payload.length > 0 ? payload.readUInt8(0) : 0;
  const errno = readNumber(payload.subarray(1));
  const kind = (step === EXEC_STEP ? EXEC_KINDS[errno] : STEPS[step]) ?? 'other';
  const subject = kind === 'bad_cwd' ? `${errnoMessage(errno)}: ${cwd ?? ''}` : errnoMessage(errno);
  const detail =
    kind === 'user_setup_failed' && errno === 2 ? 'the user is not known in the sandbox' : subject;
  return failure(kind, errno, `spawn "${program}": ${detail}`);
}

function failure(kind: FailureKind, errno: number | null, message: string): CommandFailure {
  return { kind, errno, errnoName: errno === null ? null : errnoName(errno), message };
}

function* merged(base: readonly string[], over: readonly string[]): Iterable<string> {
  const names = new Set(over.map((entry) => entry.slice(0, entry.indexOf('='))));
  for (const entry of base) if (!names.has(entry.slice(0, entry.indexOf('=')))) yield entry;
  yield* over;
}

/** The number at the beginning of a payload; 0 when it is too short for one. */
function readNumber(payload: Buffer): number {
  return payload.length >= 4 ? payload.readUInt32LE(0) : 0;
}

function ipv6Bytes(address: string): Buffer {
  const [head = '', tail] = address.split('::');
  const words = (text: string) =>
    text === '' ? [] : text.split(':').map((word) => Number.parseInt(word, 16));
  const [first, last] = [words(head), words(tail ?? '')];
  const all = [...first, ...Array<number>(8 - first.length - last.length).fill(0), ...last];
  return Buffer.from(all.flatMap((word) => [word >> 8, word & 0xff]));
}
