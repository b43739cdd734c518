import type { Buffer } from 'node:buffer';

/**
 * The way into a running sandbox, as a runtime offers it. Everything happens with the namespaces, the control group,
 * the capabilities and the seccomp profile of the sandbox. Answers of a guest are hostile input: an implementation
 * bounds and checks them, and closes when the guest does not answer. A runtime must pass
 * `test/engines/guest-conformance.ts`.
 */
export interface Guest {
  /** Starts a command. Its events arrive at the listener, the first one after this call has returned. */
  exec(command: CommandSpec, listener: CommandListener): Command;
  /** File operations as the user of the sandbox. Relative paths begin at `/`. */
  files(): GuestFiles;
  /** Opens a TCP connection from within the network of the sandbox. */
  connect(address: string, port: number, listener: ConnectionListener): Connection;
  /** `NAME=value`: of the container, as its engine made it. */
  readonly environment: readonly string[];
  /** Aborts when the sandbox has stopped, or its engine cannot be reached any more. */
  readonly gone: AbortSignal;
  /** Ends every command and connection, and closes every handle. */
  close(): void;
}

export interface CommandSpec {
  args: readonly [string, ...string[]];
  /** `NAME=value`. Merged over the environment of the sandbox. */
  env: readonly string[];
  /** Null: the working directory of the sandbox. */
  cwd: string | null;
  /** The working directory of the sandbox. Default: that of its container. */
  defaultCwd?: string;
  /**
   * `name`, `uid`, `name:group` or `uid:gid`. Null: the user of the sandbox. Another one needs CAP_SETUID and
   * CAP_SETGID.
   */
  user: string | null;
  /** The size of its terminal; null for none. */
  terminal: { rows: number; cols: number } | null;
  rlimits: readonly { resource: string; soft: bigint; hard: bigint }[];
  /** Bytes of output that may arrive before the first `grant`. Small pieces count as more, until they are granted. */
  credit: number;
}

export type FailureKind =
  | 'not_found'
  | 'permission_denied'
  | 'not_executable'
  | 'bad_cwd'
  | 'bad_args'
  | 'resource_limit'
  | 'user_setup_failed'
  | 'out_of_memory'
  | 'pty_setup_failed'
  | 'other';

export interface CommandFailure {
  kind: FailureKind;
  errno: number | null;
  /** Such as `ENOENT`. */
  errnoName: string | null;
  message: string;
}

/** `exited` or `failed` is the last call, after all output of the command. Processes that it left behind run on. */
export interface CommandListener {
  started(pid: number): void;
  output(stream: 'stdout' | 'stderr', data: Buffer): void;
  /**
   * `code`: 128 + the number of the signal that ended the command. `oomKilled`: it was killed because the sandbox had
   * no memory left; null: unknown.
   */
  exited(code: number, oomKilled: boolean | null): void;
  failed(failure: CommandFailure): void;
  /** The command does not read its input any more. */
  inputFailed(errno: number): void;
}

interface Channel {
  /** Resolves when there is room for more input. */
  write(data: Buffer): Promise<void>;
  /** Ends the input. */
  end(): void;
  /** Allows so many more bytes of output. */
  grant(bytes: number): void;
  /** Kills the process group, or drops the connection. The last call of the listener follows. */
  close(): void;
}

export interface Command extends Channel {
  resize(rows: number, cols: number): void;
  /** Sends a signal to the process group. */
  signal(number: number): void;
}

export type Connection = Channel;

/** `closed` is the last call: both ends have sent everything, or the connection failed. */
export interface ConnectionListener {
  connected(): void;
  data(data: Buffer): void;
  /** The other end sends nothing more. */
  ended(): void;
  closed(failure: string | null): void;
}

export interface FileStat {
  /** `st_mode` with the bits of the type. */
  mode: number;
  uid: number;
  gid: number;
  size: bigint;
  /** In seconds since 1970. */
  mtime: bigint;
  atime: bigint;
}

export interface FileAttributes {
  mode?: number;
  uid?: number;
  gid?: number;
  size?: bigint;
  atime?: bigint;
  mtime?: bigint;
}

export interface OpenOptions {
  read: boolean;
  write: boolean;
  append: boolean;
  create: boolean;
  truncate: boolean;
  createNew: boolean;
  mode: number;
}

export const READ_ONLY: OpenOptions = {
  read: true,
  write: false,
  append: false,
  create: false,
  truncate: false,
  createNew: false,
  mode: 0,
};

/**
 * Each method throws a GuestFileError, or another error when the sandbox has stopped. Handles belong to the object that
 * opened them, and close with it. No operation waits for another process: a named pipe without a writer is empty.
 */
export interface GuestFiles {
  stat(path: string, options: { follow: boolean }): Promise<FileStat>;
  setStat(path: string, attributes: FileAttributes, options: { follow: boolean }): Promise<void>;
  readLink(path: string): Promise<string>;
  symlink(target: string, path: string): Promise<void>;
  /** Makes its parents too. An existing directory is no error. */
  mkdir(path: string, mode: number | null): Promise<void>;
  remove(path: string): Promise<void>;
  removeDir(path: string, options: { recursive: boolean }): Promise<void>;
  /** Copies a regular file and its permissions. */
  copy(source: string, target: string): Promise<void>;
  rename(source: string, target: string): Promise<void>;
  realPath(path: string): Promise<string>;
  open(path: string, options: OpenOptions): Promise<number>;
  openDir(path: string): Promise<number>;
  close(handle: number): Promise<void>;
  /** Empty at the end of the file. */
  read(handle: number, offset: bigint, length: number): Promise<Buffer>;
  write(handle: number, offset: bigint, data: Buffer): Promise<void>;
  /** The next entries in the order of the directory; empty at the end. */
  readDir(handle: number): Promise<(FileStat & { name: string })[]>;
  statOpen(handle: number): Promise<FileStat>;
  setStatOpen(handle: number, attributes: FileAttributes): Promise<void>;
  /** Closes every handle. */
  end(): void;
}

export class GuestFileError extends Error {
  constructor(
    readonly errno: number,
    readonly errnoName: string,
    message: string,
  ) {
    super(message);
  }
}
