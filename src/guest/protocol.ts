/**
 * The one description of the messages between the service and the programs in `guest/`. The service imports it, and
 * `npm run generate` makes `guest/protocol.h` of it. Numbers and layouts are on the wire between releases, because an
 * agent outlives the service that started it: they are added, and never changed or used again.
 *
 * A frame: length of the payload (u32), channel (u32), type (u8), payload. Numbers are little-endian. Texts end with
 * NUL. A channel is a command, a file operation or a connection; the service chooses its number.
 *
 * Flow control: a command or connection sends output at most until its credit is used up, which the service grants by
 * `credit`. A frame of output costs its payload, and at least `frameCost`: many small frames fill no memory. A process
 * without credit blocks on its pipe. The service sends at most `inputWindow` bytes of input that were not acknowledged
 * by `consumed`.
 */

type Width = 'u8' | 'u16' | 'u32' | 'u64' | 'i64';
/** Its fields follow each other without padding, in the order of the names. */
export type Layout = Readonly<Record<string, Width>>;

export const WIDTHS: Readonly<Record<Width, number>> = { u8: 1, u16: 2, u32: 4, u64: 8, i64: 8 };

export const REQUEST = {
  /** Layout `exec`; then each of its `limits` as layout `limit`, user, working directory, arguments, environment. */
  exec: 1,
  /** Data for a command or a connection. Without data: the end. */
  input: 2,
  resize: 3,
  signal: 4,
  credit: 5,
  close: 6,
  /** Layout `files`, and the arguments of the operation. */
  files: 7,
  /** The channel is the owner, whose handles and operations end. */
  endOwner: 8,
  /** Layout `connect`, and an address of 4 or 16 bytes. */
  connect: 9,
  ping: 10,
} as const;

export const ANSWER = {
  /** Layout `ready`, and the environment of the agent, each entry with its NUL. The first frame, of channel 0. */
  ready: 128,
  started: 129,
  /** Also the data of connections. */
  stdout: 130,
  stderr: 131,
  exited: 132,
  failed: 133,
  consumed: 134,
  inputFailed: 135,
  /** Layout `done`, and the data of the file operation. */
  done: 136,
  connected: 137,
  /** The other end of a connection sends nothing more. */
  ended: 138,
  closed: 139,
  pong: 140,
} as const;

export const FILE_OPERATION = {
  /** `follow` (u8), path. Answer: layout `stat`. */
  stat: 1,
  /** `follow` (u8), layout `attributes`, path. */
  set: 2,
  /** Path. Answer: the target. */
  readLink: 3,
  /** Target, path. */
  symlink: 4,
  /** Layout `mkdir`, path. */
  mkdir: 5,
  /** Path. */
  remove: 6,
  /** `recursive` (u8), path. */
  removeDir: 7,
  /** Path, path. */
  copy: 8,
  /** Path, path. */
  rename: 9,
  /** Path. Answer: the real path. */
  realPath: 10,
  /** Layout `open`, path. Answer: a handle (u32). */
  open: 11,
  /** Path. Answer: a handle (u32). */
  openDir: 12,
  /** Handle (u32). */
  close: 13,
  /** Layout `read`. Answer: data. */
  read: 14,
  /** Layout `write`, data. */
  write: 15,
  /** Handle (u32). Answer: for each entry layout `stat` and a name; nothing at the end. */
  readDir: 16,
  /** Handle (u32). Answer: layout `stat`. */
  statOpen: 17,
  /** Handle (u32), layout `attributes`. */
  setOpen: 18,
} as const;

/** Bits of `exec.flags`. Only a service that has read `FEATURE.leavesCwd` sends the second. */
export const COMMAND = {
  hasTty: 1,
  /** The working directory is a default: when it cannot be entered, the command runs in the root directory. */
  mayLeaveCwd: 2,
} as const;

/** Bits of `ready.features`. Agents of earlier releases send none. */
export const FEATURE = { leavesCwd: 1 } as const;

/** The step of a start that failed. */
export const STEP = { fork: 1, pty: 2, limit: 3, user: 4, cwd: 5, exec: 6, arguments: 7 } as const;

/** Whether a command ran out of memory. */
export const OOM = { no: 0, yes: 1, unknown: 2 } as const;

/** Bits of `handover.flags`. */
export const HANDOVER = { untilExit: 1 } as const;

/** The one byte with which process 1 answers a handover. */
export const REPLY = { taken: 1, hasOne: 2, bad: 3 } as const;

/** Bits of `open.flags`. */
export const OPEN = { read: 1, write: 2, append: 4, create: 8, truncate: 16, new: 32 } as const;

/** Bits of `attributes.which`. */
export const SET = { mode: 1, uid: 2, gid: 4, size: 8, atime: 16, mtime: 32 } as const;

/**
 * The records of the boot configuration of a virtual machine: layout `bootRecord`, payload. The service writes them to
 * a disk, which the program `guest/boot` reads. Unlike the agent, both are always of one release.
 */
export const BOOT = {
  /** The last record. A configuration without it is incomplete. */
  end: 0,
  hostName: 1,
  /** As on Docker: `name`, `uid`, `name:group` or `uid:gid`. Default: root. */
  user: 2,
  /** A variable of the environment: `NAME=value`. */
  variable: 3,
  /** An argument of process 1. */
  argument: 4,
  /** Layout `limit`. */
  rlimit: 5,
  /** Random bytes for the kernel. */
  seed: 6,
  /** The file name of a kernel module, without its directory. After the modules that it needs. */
  module: 7,
  /** Layout `bootFile`, path in the sandbox, content. */
  file: 8,
  /** Layout `bootMount`; then source, target, type of the file system, options. */
  mount: 9,
  /** Layout `bootNetwork`; then address and gateway of IPv4, 4 bytes each. */
  network: 10,
  /** The sandbox gets no capabilities. */
  restricted: 11,
  /** A directory that belongs to the user where it is missing. */
  workdir: 12,
  /** Layout `bootPatch`, path, and the content or the target. A change to the files of a new disk. */
  patch: 13,
  /** The disk is a new copy of that of another sandbox: it gets the patches, and a machine id of its own. */
  copy: 14,
  /** Layout `bootHandoff`, then the path of a program of the image that becomes process 1, or `auto`. */
  handoff: 15,
  /** An argument of that program, after its name. */
  handoffArgument: 16,
  /** A variable of its environment: `NAME=value`. */
  handoffVariable: 17,
  /** The name that authorities of the service have, and the texts of those to trust, in the form of PEM. */
  authorities: 18,
  /** A file of the sandbox with all authorities that it trusts. */
  bundle: 19,
  /** A directory, and the name of the file with the authorities in it. */
  anchor: 20,
  /** A directory, the names of a file and of a link to it, and the content. Only where another store changes. */
  hashed: 21,
  /** The path of a link to the first bundle, and the content of a file in its place where there is none. */
  whole: 22,
  /** The machine sends the files of the sandbox as an archive, and runs no program of it. */
  archive: 23,
} as const;

/**
 * `bootMount.kind`. The source of `shared` and `sharedFile` is a virtiofs tag, that of `disk` the serial number of a
 * disk.
 */
export const BOOT_MOUNT = { memory: 1, shared: 2, disk: 3, sharedFile: 4 } as const;

/** The name that a shared file has in the directory of its tag, which has nothing else. */
export const SHARED_FILE = 'file';

/** `bootPatch.operation`. A link or a file replaces an earlier one only with the flag `replace`. */
export const BOOT_PATCH = { write: 1, link: 2, directory: 3, append: 4, remove: 5 } as const;

/** Bits of `bootPatch.flags`. */
export const PATCH_FLAG = { replace: 1, hasMode: 2 } as const;

/** Bits of `bootMount.flags`, as in mount(2). */
export const MOUNT_FLAG = { readonly: 1, nosuid: 2, nodev: 4, noexec: 8 } as const;

/**
 * The handshake on the port of the agent. A virtio port has no sessions: the bytes of an earlier client may be before
 * those of this one, in both directions. The client sends `hello`, a random key, and the exclusive or of both. It sends
 * nothing more before the answer, which is `welcome` or `refusal`, and the key. Each later frame of the client is
 * followed by the first bytes of the key, so a frame that the next client completes is recognized.
 */
export const HANDSHAKE = {
  hello: 'sandkeep session',
  welcome: 'sandkeep started',
  refusal: 'sandkeep refused',
} as const;

export const LIMIT = {
  /** The longest payload in either direction. */
  payload: 262_144,
  /** The input that the agent keeps for one command or connection. */
  inputWindow: 524_288,
  frameCost: 256,
  /** The arguments and the environment of a command, together. */
  texts: 16_384,
  rlimits: 32,
  /** `PATH_MAX` of Linux, with the NUL at the end. */
  path: 4_096,
  /** The room of the record that process 1 keeps in its argument `--record`. */
  record: 32,
  /** The longest handover, without its size. */
  handover: 262_144,
  /** The byte with which process 1 ends a part of a long line of the log. */
  cut: 0x1f,
  /** The bytes of a boot configuration. */
  bootBytes: 16_777_216,
  /** The longest piece of an archive on the port of the agent: 32 KiB with its length. */
  archivePiece: 32_764,
  /** A line of the port `control`, without its end. */
  controlLine: 120,
  /** The key of the handshake, and its part after each frame. */
  sessionKey: 16,
  sessionMark: 8,
} as const;

export const LAYOUT = {
  header: { length: 'u32', channel: 'u32', type: 'u8' },
  exec: {
    flags: 'u8',
    rows: 'u16',
    cols: 'u16',
    credit: 'u32',
    args: 'u16',
    env: 'u16',
    limits: 'u8',
  },
  limit: { resource: 'u8', soft: 'u64', hard: 'u64' },
  resize: { rows: 'u16', cols: 'u16' },
  signal: { number: 'u8' },
  credit: { bytes: 'u32' },
  files: { operation: 'u8', owner: 'u32' },
  /** `family`: 4 or 6. The service resolves names before. */
  connect: { credit: 'u32', family: 'u8', port: 'u16' },
  mkdir: { hasMode: 'u8', mode: 'u32' },
  open: { flags: 'u8', mode: 'u32' },
  read: { handle: 'u32', offset: 'u64', length: 'u32' },
  write: { handle: 'u32', offset: 'u64' },
  attributes: {
    which: 'u8',
    mode: 'u32',
    uid: 'u32',
    gid: 'u32',
    size: 'u64',
    atime: 'i64',
    mtime: 'i64',
  },
  stat: { mode: 'u32', uid: 'u32', gid: 'u32', size: 'u64', mtime: 'i64', atime: 'i64' },
  ready: { features: 'u8' },
  started: { pid: 'u32' },
  exited: { code: 'u32', oom: 'u8' },
  failed: { step: 'u8', errno: 'u32' },
  consumed: { bytes: 'u32' },
  inputFailed: { errno: 'u32' },
  done: { errno: 'u32' },
  bootRecord: { length: 'u32', type: 'u8' },
  bootFile: { mode: 'u32' },
  bootPatch: { operation: 'u8', flags: 'u8', mode: 'u32' },
  bootMount: { kind: 'u8', flags: 'u8' },
  bootNetwork: { mtu: 'u32' },
  /** The signal that ends the program and the sandbox with it. 0: that of the program. */
  bootHandoff: { stopSignal: 'u8' },
  /** Before a handover, which has no frame. */
  size: { bytes: 'u32' },
  /**
   * Then the working directory, the arguments, the environment, and for each script its name, layout `script` and its
   * text. An empty working directory: that of process 1.
   */
  handover: { flags: 'u8', args: 'u16', env: 'u16', scripts: 'u16' },
  script: { size: 'u32' },
} as const satisfies Record<string, Layout>;

/**
 * The error numbers of Linux that a guest can answer with, and the words of the C library. The service may run on
 * another system, so `node:os` is no source. The compiler of the guest checks the numbers for each processor.
 */
export const ERRORS = {
  EPERM: [1, 'Operation not permitted'],
  ENOENT: [2, 'No such file or directory'],
  EIO: [5, 'Input/output error'],
  ENXIO: [6, 'No such device or address'],
  E2BIG: [7, 'Argument list too long'],
  ENOEXEC: [8, 'Exec format error'],
  EBADF: [9, 'Bad file descriptor'],
  EAGAIN: [11, 'Resource temporarily unavailable'],
  ENOMEM: [12, 'Cannot allocate memory'],
  EACCES: [13, 'Permission denied'],
  EBUSY: [16, 'Device or resource busy'],
  EEXIST: [17, 'File exists'],
  EXDEV: [18, 'Invalid cross-device link'],
  ENOTDIR: [20, 'Not a directory'],
  EISDIR: [21, 'Is a directory'],
  EINVAL: [22, 'Invalid argument'],
  ENFILE: [23, 'Too many open files in system'],
  EMFILE: [24, 'Too many open files'],
  ETXTBSY: [26, 'Text file busy'],
  EFBIG: [27, 'File too large'],
  ENOSPC: [28, 'No space left on device'],
  ESPIPE: [29, 'Illegal seek'],
  EROFS: [30, 'Read-only file system'],
  EMLINK: [31, 'Too many links'],
  EPIPE: [32, 'Broken pipe'],
  ENAMETOOLONG: [36, 'File name too long'],
  ENOSYS: [38, 'Function not implemented'],
  ENOTEMPTY: [39, 'Directory not empty'],
  ELOOP: [40, 'Too many levels of symbolic links'],
  EOPNOTSUPP: [95, 'Operation not supported'],
  EADDRNOTAVAIL: [99, 'Cannot assign requested address'],
  ENETUNREACH: [101, 'Network is unreachable'],
  ECONNRESET: [104, 'Connection reset by peer'],
  ETIMEDOUT: [110, 'Connection timed out'],
  ECONNREFUSED: [111, 'Connection refused'],
  EHOSTUNREACH: [113, 'No route to host'],
  ESTALE: [116, 'Stale file handle'],
  EDQUOT: [122, 'Disk quota exceeded'],
  ECANCELED: [125, 'Operation canceled'],
} as const satisfies Record<string, readonly [number: number, message: string]>;
