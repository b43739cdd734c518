import { spawn, type ChildProcess } from 'node:child_process';
import { Socket } from 'node:net';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { ConnectError } from '../../../engine/connect-error.js';
import { PACKAGE_ROOT } from '../../../lib/package-root.js';
import { checkGroup, withContainerNamespace, type ContainerProcess } from '../container-namespace.js';

/** The build for the processor of this machine, where the engine is too. */
export const CONNECT = join(
  PACKAGE_ROOT,
  'guest',
  `connect-${process.arch === 'arm64' ? 'aarch64' : 'x86_64'}`,
);
/** As in guest/connect/main.c. */
const REQUEST_BYTES = 8;
/** After the entrance into the namespace, which takes a millisecond. */
const READY_MS = 5_000;
const LAST_ID = 0xffff_ffff;
/** Its descriptor in the program, behind the channel of Node. */
const NAMESPACE = 4;

/** The program of the sandbox has ended: with the sandbox, with its use, or because somebody killed it. */
export class ProgramEndedError extends Error {}

interface Waiting {
  resolve: (socket: Socket) => void;
  reject: (error: Error) => void;
}

/** As in guest/connect/answers.c. */
type Answer = { ready: true } | { id: number; errno?: number };

/**
 * The program in the network namespace of one sandbox, which opens connections there. It has no rights, and reads
 * nothing of the sandbox. It ends with process 1 of the sandbox.
 */
export class PortProgram {
  readonly ended: Promise<void>;
  private readonly child: ChildProcess;
  private readonly waiting = new Map<number, Waiting>();
  private readonly sockets = new Set<Socket>();
  private next = 0;
  private isOver = false;
  private lastWords = '';

  /** Throws where this machine does not show the process, or the service may not enter its namespace. */
  static async start(container: ContainerProcess, user: number): Promise<PortProgram> {
    let noteReady!: () => void;
    const ready = new Promise<void>((resolve) => (noteReady = resolve));
    const program = await withContainerNamespace(
      container,
      'net',
      (namespace) => new PortProgram(namespace, container.pid, user, noteReady),
    );
    try {
      await program.untilReady(ready);
      // Now the program watches the process. Until here its number may have become another process.
      checkGroup(container);
      return program;
    } catch (error) {
      program.kill();
      throw error;
    }
  }

  private constructor(namespace: number, pid: number, user: number, ready: () => void) {
    this.child = spawn(CONNECT, [`${NAMESPACE}`, `${pid}`, `${user}`], {
      cwd: '/',
      env: {},
      // Node receives descriptors on its own kind of channel only.
      stdio: ['pipe', 'ignore', 'pipe', 'ipc', namespace],
    });
    const { child } = this;
    createInterface(child.stderr!).on('line', (line) => (this.lastWords = line.slice(0, 500)));
    // The end of the child says it.
    child.stdin!.on('error', () => undefined);
    this.ended = new Promise((resolve) => {
      const end = () => {
        this.end();
        resolve();
      };
      child.once('error', (error) => {
        this.lastWords = error.message;
        end();
      });
      // Not `close`: the pipes may be read later, while the sandbox has ended.
      child.once('exit', end);
    });
    child.on('message', (answer: Answer, handle) => {
      if ('ready' in answer) ready();
      else this.take(answer, handle);
    });
    for (const part of [child, child.channel, child.stdin, child.stderr] as { unref?(): void }[])
      part?.unref?.();
  }

  /** The connections that are open, or are being opened. */
  get size(): number {
    return this.sockets.size + this.waiting.size;
  }

  /**
   * Throws ConnectError with the words of the kernel, or ProgramEndedError. `signal` ends the attempt. `way`: the one
   * to process 1, for port 0.
   */
  async connect(port: number, signal: AbortSignal, way = 0): Promise<Socket> {
    signal.throwIfAborted();
    if (this.isOver) throw new ProgramEndedError(this.lastWords);
    do this.next = this.next === LAST_ID ? 1 : this.next + 1;
    while (this.waiting.has(this.next));
    const id = this.next;
    const request = Buffer.alloc(REQUEST_BYTES);
    request.writeUInt32LE(id, 0);
    request.writeUInt16LE(port, 4);
    request.writeUInt16LE(way, 6);
    let stop!: () => void;
    const answer = new Promise<Socket>((resolve, reject) => {
      stop = () => reject(signal.reason instanceof Error ? signal.reason : new Error('cut off'));
      this.waiting.set(id, { resolve, reject });
    });
    signal.addEventListener('abort', stop, { once: true });
    this.child.stdin!.write(request);
    try {
      return await answer;
    } finally {
      this.waiting.delete(id);
      signal.removeEventListener('abort', stop);
    }
  }

  /** Its connections end too. */
  kill(): void {
    this.child.kill('SIGKILL');
    this.end();
  }

  private async untilReady(ready: Promise<void>): Promise<void> {
    let late: NodeJS.Timeout | undefined;
    const tooLate = new Promise<never>((_resolve, reject) => {
      late = setTimeout(() => reject(new Error('the program did not start in time')), READY_MS);
    });
    const failed = this.ended.then(async () => {
      // Its error output may arrive after its end.
      await new Promise((resolve) => setImmediate(resolve));
      throw new Error(this.lastWords || 'the program has ended at once');
    });
    try {
      await Promise.race([ready, failed, tooLate]);
    } finally {
      clearTimeout(late);
      failed.catch(() => undefined);
    }
  }

  private take({ id, errno }: Exclude<Answer, { ready: true }>, handle: unknown): void {
    const waiting = this.waiting.get(id);
    this.waiting.delete(id);
    if (!(handle instanceof Socket)) {
      return waiting?.reject(new ConnectError(errno ?? 0));
    }
    // Nobody waits any more.
    if (!waiting || this.isOver) return void handle.destroy();
    handle.allowHalfOpen = true;
    // A stream without a listener would end the process.
    handle.on('error', () => undefined);
    this.sockets.add(handle);
    handle.once('close', () => this.sockets.delete(handle));
    waiting.resolve(handle);
  }

  private end(): void {
    if (this.isOver) return;
    this.isOver = true;
    const failure = new ProgramEndedError(this.lastWords);
    for (const { reject } of this.waiting.values()) reject(failure);
    for (const socket of this.sockets) socket.destroy(new Error('the sandbox has stopped'));
  }
}
