import type { Buffer } from 'node:buffer';
import { Serial } from '../../lib/serial.js';
import type { Command, CommandFailure, CommandListener, CommandSpec } from '../../guest/guest.js';
import { initialSize, resize } from '../terminal/size.js';
import type { SessionRecord } from '../sessions/recorder.js';
import type { Envelope, Payload } from './envelope.js';
import {
  BadPayload,
  readBytes,
  readFlag,
  readInteger,
  readMaps,
  readOptionalText,
  readText,
  readTexts,
  readUint64,
} from './payload.js';
import type { ClientDefaults } from './sdk-defaults.js';
import { refusalOf, type Link, type Session } from './session.js';

/** The output of a command that may be under way to the client, in bytes. */
const WINDOW = 512 * 1024;
const KILLED = 137;

/** A command that a client runs. */
export class ExecSession implements Session {
  /** Undefined when the command was not started. */
  private readonly started: Promise<Command | undefined>;
  private record: SessionRecord | undefined;
  private readonly input = new Serial();
  private hasStarted = false;
  private isOver = false;
  private abandonedFor = '';

  constructor(
    private readonly link: Link,
    private readonly id: number,
    { payload, size }: Envelope,
  ) {
    const spec = readCommand(payload, link.clientDefaults, link.window(WINDOW));
    this.started = this.start(spec);
    void this.started.finally(link.hold(size));
  }

  receive(type: string, { payload }: Envelope): void {
    try {
      this.handle(type, payload);
    } catch (error) {
      if (!(error instanceof BadPayload)) throw error;
      this.warn(error.message, null);
    }
  }

  abandon(reason: string): void {
    if (this.isOver) return;
    this.isOver = true;
    this.abandonedFor = reason;
    void this.started.then((command) => command?.close());
    this.record?.end({ exitCode: null, reason });
  }

  private async start(spec: CommandSpec): Promise<Command | undefined> {
    try {
      const kind = spec.terminal ? 'terminal' : 'exec';
      const record = await this.link.recorder.open({ kind, user: spec.user, args: spec.args });
      this.record = record;
      record.ended.addEventListener('abort', () => this.endAlone(), { once: true });
      if (this.isOver) {
        record.end({ exitCode: null, reason: this.abandonedFor });
        return undefined;
      }
      return this.link.guest.exec(spec, this.listener(record));
    } catch (error) {
      const message = `spawn "${spec.args[0]}": ${refusalOf(error, this.link.log)}`;
      this.fail({ kind: 'other', errno: null, errnoName: null, message });
      return undefined;
    }
  }

  private handle(type: string, payload: Payload): void {
    if (type === 'core.exec.stdin') this.write(readBytes(payload, 'data'));
    else if (type === 'core.exec.resize') {
      const [rows, cols] = [readSize(payload, 'rows'), readSize(payload, 'cols')];
      this.control((command) => resize(command, rows, cols));
    } else if (type === 'core.exec.signal') {
      const number = readInteger(payload, 'signal', 1, 64);
      this.control((command) => command.signal(number));
    }
  }

  /** Overtakes the input, which the command may not read. */
  private control(act: (command: Command) => void): void {
    const release = this.link.hold(0);
    void this.started.then((command) => command && act(command)).finally(release);
  }

  private write(data: Buffer): void {
    const release = this.link.hold(data.length);
    this.input.run(async () => {
      try {
        const command = await this.started;
        if (data.length === 0) command?.end();
        else {
          this.record?.received(data.length);
          await command?.write(data);
        }
      } finally {
        release();
      }
    });
  }

  private listener(record: SessionRecord): CommandListener {
    return {
      started: (pid) => {
        this.hasStarted = true;
        this.link.send(this.id, 'core.exec.started', { pid });
      },
      output: (stream, data) => {
        record.sent(data.length);
        const grant = () => void this.started.then((command) => command?.grant(data.length));
        this.link.send(this.id, `core.exec.${stream}`, { data }, grant);
      },
      inputFailed: (errno) => this.warn('the command does not read its input', errno),
      exited: (code, oomKilled) => this.exit(code, 'exited', oomKilled),
      failed: (failure) => {
        if (!this.hasStarted) this.fail(failure);
        // Only a sandbox that stopped ends a command in this way.
        else this.exit(KILLED, 'sandbox_stopped');
      },
    };
  }

  private exit(code: number, reason: string, oomKilled: boolean | null = null): void {
    if (this.isOver) return;
    this.isOver = true;
    this.record?.end({ exitCode: code, reason, oomKilled });
    this.link.finish(this.id, 'core.exec.exited', { code });
  }

  /** Another caller has asked for the end. The client reads it as the end of a killed command. */
  private endAlone(): void {
    void this.started.then((command) => command?.close());
    this.exit(KILLED, 'session_ended');
  }

  private fail({ kind, errno, errnoName, message }: CommandFailure): void {
    if (this.isOver) return;
    this.isOver = true;
    this.record?.end({ exitCode: null, reason: kind });
    const failure = { kind, errno, errno_name: errnoName, message, stage: null };
    this.link.finish(this.id, 'core.exec.failed', failure);
  }

  /** Tells the client of a fault that does not end the command. */
  private warn(message: string, errno: number | null): void {
    this.link.send(this.id, 'core.exec.stdin.error', { errno, errno_name: null, message });
  }
}

function readCommand(payload: Payload, defaults: ClientDefaults, credit: number): CommandSpec {
  const named = (name: keyof ClientDefaults) => {
    const value = readOptionalText(payload, name);
    return value === defaults[name] ? null : value;
  };
  const [program, args] = [readText(payload, 'cmd'), readTexts(payload, 'args')];
  if (program === '') throw new BadPayload('"cmd" is empty');
  return {
    args: [program, ...args],
    env: readTexts(payload, 'env'),
    cwd: named('cwd'),
    user: named('user'),
    terminal: readFlag(payload, 'tty')
      ? initialSize(readSize(payload, 'rows'), readSize(payload, 'cols'))
      : null,
    rlimits: readMaps(payload, 'rlimits').map((limit) => ({
      resource: readText(limit, 'resource'),
      soft: readUint64(limit, 'soft'),
      hard: readUint64(limit, 'hard'),
    })),
    credit,
  };
}

function readSize(payload: Payload, name: string): number {
  return readInteger(payload, name, 0, 0xffff);
}
