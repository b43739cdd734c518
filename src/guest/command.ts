import type { Buffer } from 'node:buffer';
import { errnoMessage, errnoName } from './errno.js';
import type { CommandFailure, CommandListener, CommandSpec, FailureKind } from './guest.js';
import { ANSWER, MAX_PAYLOAD, readNumber, RequestWriter, type Frame } from './wire.js';

const MAX_TEXTS = 16_384;
const MAX_LIMITS = 32;

const RLIMITS: ReadonlyMap<string, number> = new Map(
  [
    'cpu',
    'fsize',
    'data',
    'stack',
    'core',
    'rss',
    'nproc',
    'nofile',
    'memlock',
    'as',
    'locks',
    'sigpending',
    'msgqueue',
    'nice',
    'rtprio',
    'rttime',
  ].map((name, number) => [name, number]),
);

/** The step of a start that failed; see `guest/agent.c`. */
const STEPS: Record<number, FailureKind> = {
  1: 'resource_limit',
  2: 'pty_setup_failed',
  3: 'resource_limit',
  4: 'user_setup_failed',
  5: 'bad_cwd',
  6: 'other',
  7: 'bad_args',
};
/** See guest/oom.h. An agent of an earlier release does not say. */
const OOM_KILLED: Record<number, boolean> = { 0: false, 1: true };
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
const [ENOENT, E2BIG, EINVAL] = [2, 7, 22];

/** The values of the sandbox that a command takes over. */
export interface CommandDefaults {
  /** `NAME=value`. */
  env: readonly string[];
  cwd: string;
}

/** The flags of a request; see `guest/agent-commands.h`. */
const [HAS_TTY, MAY_LEAVE_CWD] = [1, 2];
/** The features of an agent that knows `MAY_LEAVE_CWD`. Agents of earlier releases send none. */
const LEAVES_CWD = 1;

/** `features`: those of the agent. Returns the request of a command, or the reason why it cannot be sent. */
export function encodeCommand(
  command: CommandSpec,
  defaults: CommandDefaults,
  features: number,
): { bytes: Buffer } | CommandFailure {
  const { args, terminal, rlimits, credit } = command;
  const refuse = (kind: FailureKind, errno: number, reason: string) =>
    failure(kind, errno, `spawn "${args[0]}": ${reason}`);
  const env = [...merged(defaults.env, command.env)];
  const limits = rlimits.map((limit) => ({ ...limit, number: RLIMITS.get(limit.resource.toLowerCase()) }));
  const unknown = limits.find(({ number }) => number === undefined);
  if (unknown) return refuse('resource_limit', EINVAL, `there is no limit "${unknown.resource}"`);
  if (limits.length > MAX_LIMITS) return refuse('resource_limit', EINVAL, 'it has too many limits');
  // Without a user the agent keeps its own, which is that of the sandbox.
  const [user, cwd] = [command.user ?? '', command.cwd ?? defaults.cwd];
  if ([...args, ...env, cwd, user].some((text) => text.includes('\0'))) {
    return refuse('bad_args', EINVAL, 'a NUL character is in its arguments');
  }
  if (args.length + env.length > MAX_TEXTS) return refuse('bad_args', E2BIG, errnoMessage(E2BIG));
  const mayLeave = command.cwd === null && features >= LEAVES_CWD;
  const request = new RequestWriter()
    .u8((terminal ? HAS_TTY : 0) | (mayLeave ? MAY_LEAVE_CWD : 0))
    .u16(terminal?.rows ?? 0)
    .u16(terminal?.cols ?? 0)
    .u32(credit)
    .u16(args.length)
    .u16(env.length)
    .u8(limits.length);
  for (const { number, soft, hard } of limits) request.u8(number!).u64(soft).u64(hard);
  request.text(user).path(cwd);
  for (const text of [...args, ...env]) request.text(text);
  const bytes = request.end();
  return bytes.length > MAX_PAYLOAD ? refuse('bad_args', E2BIG, errnoMessage(E2BIG)) : { bytes };
}

/** Passes the frames of a command to its listener. The returned function tells whether a frame was the last one. */
export function commandReceiver(
  { args, cwd }: CommandSpec,
  defaults: CommandDefaults,
  listener: CommandListener,
): (frame: Frame) => boolean {
  return ({ type, payload }) => {
    if (type === ANSWER.started) listener.started(readNumber(payload));
    else if (type === ANSWER.stdout) listener.output('stdout', payload);
    else if (type === ANSWER.stderr) listener.output('stderr', payload);
    else if (type === ANSWER.inputFailed) listener.inputFailed(readNumber(payload));
    else if (type === ANSWER.exited)
      listener.exited(readNumber(payload) & 0xff, OOM_KILLED[payload[4] ?? -1] ?? null);
    else if (type === ANSWER.failed) listener.failed(failureOf(args[0], cwd ?? defaults.cwd, payload));
    return type === ANSWER.exited || type === ANSWER.failed;
  };
}

export function failure(kind: FailureKind, errno: number | null, message: string): CommandFailure {
  return { kind, errno, errnoName: errno === null ? null : errnoName(errno), message };
}

function failureOf(program: string, cwd: string, payload: Buffer): CommandFailure {
  const step = payload.length > 0 ? payload.readUInt8(0) : 0;
  const errno = readNumber(payload.subarray(1));
  const kind = (step === EXEC_STEP ? EXEC_KINDS[errno] : STEPS[step]) ?? 'other';
  let detail = errnoMessage(errno);
  if (kind === 'bad_cwd') {
    const named = cwd === '' ? 'of the sandbox' : JSON.stringify(cwd);
    detail = `the working directory ${named} cannot be entered: ${detail}`;
  } else if (kind === 'user_setup_failed' && errno === ENOENT)
    detail = 'the user is not known in the sandbox';
  return failure(kind, errno, `spawn "${program}": ${detail}`);
}

function* merged(base: readonly string[], over: readonly string[]): Iterable<string> {
  const nameOf = (entry: string) => entry.split('=', 1)[0];
  const names = new Set(over.map(nameOf));
  for (const entry of base) if (!names.has(nameOf(entry))) yield entry;
  yield* over;
}
