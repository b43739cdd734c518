import type { Buffer } from 'node:buffer';
import { errnoMessage, errnoName, errnoOf } from './errno.js';
import type { CommandFailure, CommandListener, CommandSpec, FailureKind } from './guest.js';
import { ANSWER, COMMAND, FEATURE, LAYOUT, LIMIT, OOM, STEP } from './protocol.js';
import { decode, RequestWriter, sizeOf, type Frame } from './wire.js';

/** The numbers of Linux, by lower-case names. */
export const RLIMITS: ReadonlyMap<string, number> = new Map(
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

/** The step of a start that failed. */
const STEP_KINDS: Record<number, FailureKind> = {
  [STEP.fork]: 'resource_limit',
  [STEP.pty]: 'pty_setup_failed',
  [STEP.limit]: 'resource_limit',
  [STEP.user]: 'user_setup_failed',
  [STEP.cwd]: 'bad_cwd',
  [STEP.exec]: 'other',
  [STEP.arguments]: 'bad_args',
};
const EXEC_KINDS: Record<number, FailureKind> = {
  [errnoOf('ENOENT')]: 'not_found',
  [errnoOf('ENOTDIR')]: 'not_found',
  [errnoOf('EACCES')]: 'permission_denied',
  [errnoOf('EPERM')]: 'permission_denied',
  [errnoOf('ENOEXEC')]: 'not_executable',
  [errnoOf('E2BIG')]: 'bad_args',
  [errnoOf('ENOMEM')]: 'out_of_memory',
};
const [ENOENT, E2BIG, EINVAL] = [errnoOf('ENOENT'), errnoOf('E2BIG'), errnoOf('EINVAL')];
const EXITED_BYTES = sizeOf(LAYOUT.exited);

/** The values of the sandbox that a command takes over. */
export interface CommandDefaults {
  /** `NAME=value`. */
  env: readonly string[];
  cwd: string;
}

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
  if (limits.length > LIMIT.rlimits) return refuse('resource_limit', EINVAL, 'it has too many limits');
  // Without a user the agent keeps its own, which is that of the sandbox.
  const [user, cwd] = [command.user ?? '', command.cwd ?? command.defaultCwd ?? defaults.cwd];
  if ([...args, ...env, cwd, user].some((text) => text.includes('\0'))) {
    return refuse('bad_args', EINVAL, 'a NUL character is in its arguments');
  }
  if (args.length + env.length > LIMIT.texts) return refuse('bad_args', E2BIG, errnoMessage(E2BIG));
  const mayLeave = command.cwd === null && (features & FEATURE.leavesCwd) !== 0;
  const request = new RequestWriter().fields(LAYOUT.exec, {
    flags: (terminal ? COMMAND.hasTty : 0) | (mayLeave ? COMMAND.mayLeaveCwd : 0),
    rows: terminal?.rows ?? 0,
    cols: terminal?.cols ?? 0,
    credit,
    args: args.length,
    env: env.length,
    limits: limits.length,
  });
  for (const { number, soft, hard } of limits)
    request.fields(LAYOUT.limit, { resource: number!, soft, hard });
  request.text(user).path(cwd);
  for (const text of [...args, ...env]) request.text(text);
  const bytes = request.end();
  return bytes.length > LIMIT.payload ? refuse('bad_args', E2BIG, errnoMessage(E2BIG)) : { bytes };
}

/** Passes the frames of a command to its listener. The returned function tells whether a frame was the last one. */
export function commandReceiver(
  { args, cwd, defaultCwd }: CommandSpec,
  defaults: CommandDefaults,
  listener: CommandListener,
): (frame: Frame) => boolean {
  return ({ type, payload }) => {
    if (type === ANSWER.started) listener.started(decode(LAYOUT.started, payload).pid);
    else if (type === ANSWER.stdout) listener.output('stdout', payload);
    else if (type === ANSWER.stderr) listener.output('stderr', payload);
    else if (type === ANSWER.inputFailed) listener.inputFailed(decode(LAYOUT.inputFailed, payload).errno);
    else if (type === ANSWER.exited)
      listener.exited(decode(LAYOUT.exited, payload).code & 0xff, wasOutOfMemory(payload));
    else if (type === ANSWER.failed)
      listener.failed(failureOf(args[0], cwd ?? defaultCwd ?? defaults.cwd, payload));
    return type === ANSWER.exited || type === ANSWER.failed;
  };
}

export function failure(kind: FailureKind, errno: number | null, message: string): CommandFailure {
  return { kind, errno, errnoName: errno === null ? null : errnoName(errno), message };
}

/** Null: the agent does not know, or is of an earlier release and does not say. */
function wasOutOfMemory(payload: Buffer): boolean | null {
  const { oom } = decode(LAYOUT.exited, payload);
  if (payload.length < EXITED_BYTES || (oom !== OOM.no && oom !== OOM.yes)) return null;
  return oom === OOM.yes;
}

function failureOf(program: string, cwd: string, payload: Buffer): CommandFailure {
  const { step, errno } = decode(LAYOUT.failed, payload);
  const kind = (step === STEP.exec ? EXEC_KINDS[errno] : STEP_KINDS[step]) ?? 'other';
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
