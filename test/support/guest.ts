import { Buffer } from 'node:buffer';
import { sleep } from '../../src/lib/sleep.js';
import {
  READ_ONLY,
  type Command,
  type CommandFailure,
  type CommandSpec,
  type Connection,
  type Guest,
  type GuestFiles,
} from '../../src/guest/guest.js';
import { until } from './polling.js';

export interface RunOptions extends Partial<Omit<CommandSpec, 'args'>> {
  input?: string | Buffer;
  /** Without: each piece is granted when it arrives. */
  grants?: boolean;
}

/** A command of a test, and everything that its listener got. */
export class TestCommand {
  readonly stdout: Buffer[] = [];
  readonly stderr: Buffer[] = [];
  readonly inputFailures: number[] = [];
  readonly calls: string[] = [];
  pid: number | undefined;
  code: number | undefined;
  failure: CommandFailure | undefined;
  readonly command: Command;
  readonly over: Promise<void>;

  constructor(guest: Guest, args: readonly string[], options: RunOptions = {}) {
    const { input, grants = true, ...spec } = options;
    let finish!: () => void;
    this.over = new Promise((resolve) => (finish = resolve));
    this.command = guest.exec(
      {
        args: args as [string, ...string[]],
        env: [],
        cwd: null,
        user: null,
        terminal: null,
        rlimits: [],
        credit: 262_144,
        ...spec,
      },
      {
        started: (pid) => {
          this.calls.push('started');
          this.pid = pid;
        },
        output: (stream, data) => {
          this.calls.push(stream);
          this[stream].push(Buffer.from(data));
          if (grants) this.command.grant(data.length);
        },
        exited: (code) => {
          this.calls.push('exited');
          this.code = code;
          finish();
        },
        failed: (failure) => {
          this.calls.push('failed');
          this.failure = failure;
          finish();
        },
        inputFailed: (errno) => void this.inputFailures.push(errno),
      },
    );
    if (input !== undefined) {
      void this.command.write(Buffer.from(input)).then(() => this.command.end());
    }
  }

  get out(): string {
    return Buffer.concat(this.stdout).toString();
  }

  get err(): string {
    return Buffer.concat(this.stderr).toString();
  }

  get size(): number {
    return this.stdout.reduce((sum, { length }) => sum + length, 0);
  }

  async says(text: string): Promise<void> {
    await until(
      () => Promise.resolve(this.out),
      (out) => out.includes(text) || this.calls.includes('exited'),
    );
  }
}

/** Runs a command to its end. */
export async function run(
  guest: Guest,
  args: readonly string[],
  options: RunOptions = {},
): Promise<TestCommand> {
  const command = new TestCommand(guest, args, options);
  await command.over;
  return command;
}

export async function sh(guest: Guest, script: string, options: RunOptions = {}): Promise<string> {
  const command = await run(guest, ['sh', '-c', script], options);
  if (command.failure || command.code !== 0) {
    throw new Error(`"${script}" ended with ${command.code}: ${command.failure?.message ?? command.err}`);
  }
  return command.out.trim();
}

/** A connection of a test, and everything that its listener got. */
export class TestConnection {
  readonly received: Buffer[] = [];
  readonly calls: string[] = [];
  /** Undefined while it is open. */
  closed: { failure: string | null } | undefined;
  readonly connection: Connection;

  constructor(guest: Guest, address: string, port: number) {
    this.connection = guest.connect(address, port, {
      connected: () => void this.calls.push('connected'),
      data: (data) => {
        this.received.push(Buffer.from(data));
        this.connection.grant(data.length);
      },
      ended: () => void this.calls.push('ended'),
      closed: (failure) => {
        this.calls.push('closed');
        this.closed = { failure };
      },
    });
  }

  get text(): string {
    return Buffer.concat(this.received).toString();
  }

  async saw(call: string): Promise<void> {
    await until(
      () => Promise.resolve(this.calls),
      (calls) => calls.includes(call) || this.closed !== undefined,
    );
  }
}

/** Connects to a server that may not listen yet. */
export async function connectSoon(
  guest: Guest,
  port: number,
  address = '127.0.0.1',
): Promise<TestConnection> {
  for (let attempt = 0; ; attempt++) {
    const connection = new TestConnection(guest, address, port);
    await connection.saw('connected');
    if (!connection.closed || attempt > 600) return connection;
    await sleep(50);
  }
}

export const READ = READ_ONLY;
export const WRITE = {
  read: false,
  write: true,
  append: false,
  create: true,
  truncate: true,
  createNew: false,
  mode: 0o644,
};

export async function readAll(files: GuestFiles, path: string): Promise<Buffer> {
  const handle = await files.open(path, READ);
  const parts: Buffer[] = [];
  let offset = 0n;
  for (;;) {
    const part = await files.read(handle, offset, 1 << 20);
    if (part.length === 0) break;
    parts.push(part);
    offset += BigInt(part.length);
  }
  await files.close(handle);
  return Buffer.concat(parts);
}

export async function writeAll(files: GuestFiles, path: string, data: Buffer | string): Promise<void> {
  const handle = await files.open(path, WRITE);
  await files.write(handle, 0n, Buffer.from(data));
  await files.close(handle);
}

export async function listAll(files: GuestFiles, path: string): Promise<string[]> {
  const handle = await files.openDir(path);
  const names: string[] = [];
  for (;;) {
    const batch = await files.readDir(handle);
    if (batch.length === 0) break;
    names.push(...batch.map(({ name }) => name));
  }
  await files.close(handle);
  return names;
}

/** The name of the error that a promise rejects with, such as `ENOENT`. */
export async function errorOf(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => 'no error',
    (error: { errnoName?: string; message: string }) => error.errnoName ?? error.message,
  );
}

export async function isAlive(guest: Guest, pid: string): Promise<boolean> {
  const script = `read -r pid name state rest < /proc/${pid}/stat && [ $state != Z ]`;
  return (await run(guest, ['sh', '-c', script])).code === 0;
}
