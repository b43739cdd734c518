import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, openSync } from 'node:fs';
import { createConnection, type Socket } from 'node:net';
import { arch } from 'node:os';
import { join } from 'node:path';
import { PauseRefusedError } from '../../engine/runtime.js';
import { BUILDS } from '../../guest/programs.js';
import { PACKAGE_ROOT } from '../../lib/package-root.js';
import type { PublishedPort } from '../../spec/network-schema.js';
import { TAP_PROGRAM } from './network/network-probe.js';
import { TAP } from './network/sandbox-namespace.js';

/** Descriptors of a supervisor that its monitor does not get, and the first one of the monitor. */
export const DESCRIPTOR = { changes: 3, namespace: 4, tap: 5, first: 6 };

/** The output of a sandbox on the disk of the machine is at most twice as much. */
const OUTPUT_FILE_BYTES = 10 * 1024 * 1024;

export interface SupervisorOptions {
  /** In which it works. */
  runDirectory: string;
  user: number;
  /** That of /dev/kvm. */
  alsoGroup: number | undefined;
  /** The `cgroup.procs` of its control groups. */
  joined: readonly string[];
  changes: number;
  /** The network namespace of the virtual machine, which has a tap. Undefined: it has no network. */
  namespace: number | undefined;
  /** Ports of IPv4 of this machine, from which it keeps other programs. Default: none. */
  ports?: readonly PublishedPort[];
  /** The descriptor of the memory that the monitor continues. Undefined: it starts anew. */
  restored?: number | undefined;
  /** The machine ends with this process. Default: false. */
  endsWithService?: boolean;
  /** Default: 10 MiB. */
  outputFileBytes?: number;
  /** The most of each file that the monitor writes. */
  diskFileMib: number;
  /**
   * Descriptors of directories among `files`. The monitor gets a connection to a file server in the place of each.
   * Default: none.
   */
  folders?: readonly { descriptor: number; isReadonly: boolean }[];
  /** The command of the file servers. */
  fileServer?: readonly string[];
  /** Those of the monitor, from `DESCRIPTOR.first` on. */
  files: readonly number[];
  monitor: readonly string[];
}

/** Starts a supervisor, which outlives this process by default. `ended` resolves when it has ended. */
export function startSupervisor(options: SupervisorOptions): { ended: Promise<void> } {
  const { runDirectory, user, alsoGroup, joined, changes, namespace, files, monitor } = options;
  const {
    endsWithService = false,
    outputFileBytes = OUTPUT_FILE_BYTES,
    diskFileMib,
    restored,
    ports = [],
    folders = [],
    fileServer = [],
  } = options;
  const complaints = openSync(join(runDirectory, 'complaints'), 'a', 0o600);
  try {
    const [program, ...first] = commandOf(namespace);
    const child = spawn(
      program,
      [
        ...first,
        `--user=${user}`,
        ...(alsoGroup === undefined ? [] : [`--also-group=${alsoGroup}`]),
        ...(endsWithService ? [`--service=${process.pid}`] : []),
        `--changes=${DESCRIPTOR.changes}`,
        ...(namespace === undefined ? [] : [`--kept=${DESCRIPTOR.namespace}`]),
        `--inherited=${DESCRIPTOR.first + files.length}`,
        `--log-limit=${outputFileBytes}`,
        `--file-mib=${diskFileMib}`,
        ...(restored === undefined ? [] : [`--restore=${restored}`]),
        ...ports.flatMap(({ protocol, host_bind, host_port }) => [
          `--hold-at=${numberOf(host_bind)}`,
          `--hold-${protocol}=${host_port}`,
        ]),
        ...joined.map((file) => `--join=${file}`),
        ...folders.map(({ descriptor, isReadonly }) =>
          isReadonly ? `--share-readonly=${descriptor}` : `--share=${descriptor}`,
        ),
        ...fileServer.map((word) => `--server=${word}`),
        '--',
        ...monitor,
      ],
      {
        cwd: runDirectory,
        detached: true,
        env: {},
        stdio: ['ignore', complaints, complaints, changes, namespace ?? 'ignore', 'ignore', ...files],
      },
    );
    child.unref();
    const ended = new Promise<void>((resolve) => {
      child.once('error', () => resolve());
      child.once('exit', () => resolve());
    });
    return { ended };
  } finally {
    closeSync(complaints);
  }
}

/** The number of an address of IPv4. */
function numberOf(address: string): number {
  return address.split('.').reduce((sum, octet) => sum * 256 + Number(octet), 0);
}

/** Another program opens the tap, and becomes the supervisor. */
function commandOf(namespace: number | undefined): [string, ...string[]] {
  if (namespace === undefined) return [programOf()];
  return [TAP_PROGRAM, `${DESCRIPTOR.namespace}`, `${DESCRIPTOR.tap}`, TAP, programOf()];
}

function programOf(): string {
  return join(PACKAGE_ROOT, 'guest', `supervise-${BUILDS[ARCHITECTURES[arch()] ?? arch()] ?? arch()}`);
}

const ARCHITECTURES: Record<string, string> = { x64: 'x86_64', arm64: 'aarch64' };

/**
 * Connects to a socket of a run. The way leads through a descriptor of the directory, as the kernel takes paths of 107
 * bytes.
 */
export async function connectIn(directory: string, name: string): Promise<Socket> {
  return withDirectory(directory, async (short) => {
    const socket = createConnection(`${short}/${name}`);
    await once(socket, 'connect');
    return socket;
  });
}

/** A short path of the directory, as long as `work` takes. */
export async function withDirectory<T>(directory: string, work: (short: string) => Promise<T>): Promise<T> {
  const descriptor = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    return await work(`/proc/self/fd/${descriptor}`);
  } finally {
    closeSync(descriptor);
  }
}

/**
 * Resolves when the run has ended. False: no supervisor answers.
 *
 * @param mostMs Then it resolves although the run goes on. Default: never.
 */
export async function requestStop(runDirectory: string, graceMs: number, mostMs?: number): Promise<boolean> {
  let socket: Socket;
  try {
    socket = await connectIn(runDirectory, 'supervisor.sock');
  } catch {
    return false;
  }
  // Not `once` of node:events, which rejects at an error: a supervisor that ends may reset the connection.
  const closed = new Promise((resolve) => socket.once('close', resolve));
  socket.on('error', () => undefined);
  socket.resume();
  socket.write(`stop ${Math.ceil(graceMs)}\n`);
  const late = mostMs === undefined ? undefined : setTimeout(() => socket.destroy(), mostMs);
  await closed;
  clearTimeout(late);
  return true;
}

/**
 * Asks for the memory of the run in a file. Resolves when the run has ended. Throws PauseRefusedError: it runs on.
 *
 * @param mostBytes Of the file.
 */
export async function requestSave(runDirectory: string, mostBytes: number): Promise<void> {
  const socket = await connectIn(runDirectory, 'supervisor.sock');
  try {
    socket.write(`save ${mostBytes}\n`);
    let text = '';
    for await (const chunk of socket) {
      text = (text + String(chunk)).slice(-LONGEST_ANSWER);
      const words = UNSAVED.exec(text)?.[1];
      if (words !== undefined) throw new PauseRefusedError(`the monitor cannot save its memory: ${words}`);
    }
  } catch (error) {
    // A supervisor that ends may reset the connection.
    if (error instanceof PauseRefusedError) throw error;
  } finally {
    socket.destroy();
  }
}

/** Undefined: the sandbox has not answered in time, or has answered something else. */
export async function askUse(runDirectory: string): Promise<GuestUse | undefined> {
  try {
    const socket = await connectIn(runDirectory, 'supervisor.sock');
    // Not the time-out of the socket, which begins anew at each byte.
    const late = setTimeout(() => socket.destroy(), USE_WAIT_MS);
    try {
      socket.write('use\n');
      let text = '';
      for await (const chunk of socket) {
        text += String(chunk);
        if (text.length > LONGEST_ANSWER) return undefined;
        const [, cpu, memory, processes] = USE.exec(text) ?? [];
        if (cpu !== undefined)
          return { cpuMicros: Number(cpu), memoryBytes: Number(memory), processes: Number(processes) };
      }
    } finally {
      clearTimeout(late);
      socket.destroy();
    }
  } catch {
    // The run has ended.
  }
  return undefined;
}

export interface GuestUse {
  cpuMicros: number;
  memoryBytes: number;
  processes: number;
}

/** `^` with the flag `m` would also match after a carriage return. */
const UNSAVED = /(?:^|\n)unsaved (.{1,300})\n/;
const USE = /(?:^|\n)use (\d{1,15}) (\d{1,15}) (\d{1,9})\n/;
const USE_WAIT_MS = 500;
/** More than a line of a supervisor. */
const LONGEST_ANSWER = 4_096;
