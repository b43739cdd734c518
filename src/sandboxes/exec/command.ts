import type { Buffer } from 'node:buffer';
import { ApiError } from '../../http/errors.js';
import { now, type Instant } from '../../lib/instant.js';
import type { Command, CommandFailure, CommandSpec } from '../../guest/guest.js';
import { cutError, endedError } from '../sessions/ended-error.js';
import type { EndReason } from '../sessions/ended-error.js';
import type { Visit } from '../sessions/entrance.js';

/** How long the output of a killed command may take to end, in milliseconds. */
const KILL_GRACE_MS = 1_000;
/** While its output waits for turns of its owner. */
const MOST_GRACES = 10;
/** A guest can stop its agent. The caller does not wait longer for the end of a killed command, in milliseconds. */
const CONFIRM_MS = 2_000;
const SIGKILL = 9;
/** The exit code of a command that a signal ended, without the number of the signal. */
const SIGNALLED = 128;

interface Outcome {
  exitCode: number;
  oomKilled: boolean | null;
  timedOut: boolean;
  durationMs: number;
}

export interface OutputListener {
  started?(pid: number): void;
  /** The command waits when it has written more than the credit of its specification and the later grants. */
  output(stream: 'stdout' | 'stderr', data: Buffer): void;
  /** Output waits for its turn. A killed command gets more time for the rest. Default: it does not. */
  isBehind?(): boolean;
}

/** A command of one visit, with a record in the audit trail. */
export interface VisitCommand {
  readonly command: Command;
  /** Rejects with an ApiError if the command does not start, or the visit ends. */
  readonly outcome: Promise<Outcome>;
  /** Counts input, and resolves when there is room for more. */
  write(this: void, data: Buffer): Promise<void>;
}

export async function beginCommand(
  { guest, recorder, ended }: Visit,
  spec: CommandSpec,
  listener: OutputListener,
  timeoutMs?: number,
): Promise<VisitCommand> {
  const kind = spec.terminal ? 'terminal' : 'exec';
  const record = await recorder.open({ kind, user: spec.user, args: spec.args });
  if (ended.aborted) {
    record.end({ exitCode: null, reason: String(ended.reason) });
    throw endedError(ended);
  }
  const begun = performance.now();
  const timers: NodeJS.Timeout[] = [];
  let timedOut = false;
  let startedAt: Instant | null = null;
  let settle!: {
    exited: (code: number, oomKilled: boolean | null) => void;
    failed: (error: ApiError, reason: string) => void;
  };
  const outcome = new Promise<Outcome>((resolve, reject) => {
    const over = (exitCode: number | null, reason: string, oomKilled: boolean | null = null) => {
      timers.forEach(clearTimeout);
      ended.removeEventListener('abort', abandon);
      record.ended.removeEventListener('abort', endAlone);
      record.end({ exitCode, reason, oomKilled });
    };
    settle = {
      exited(exitCode, oomKilled) {
        over(exitCode, timedOut ? 'timed_out' : 'exited', oomKilled);
        resolve({ exitCode, oomKilled, timedOut, durationMs: Math.round(performance.now() - begun) });
      },
      failed(error, reason) {
        over(null, reason);
        reject(error);
      },
    };
  });
  outcome.catch(() => undefined);
  const command = guest.exec(spec, {
    started(pid) {
      startedAt = now();
      listener.started?.(pid);
    },
    output(stream, data) {
      record.sent(data.length);
      listener.output(stream, data);
    },
    inputFailed: () => undefined,
    exited: (code, oomKilled) => settle.exited(code, oomKilled),
    failed(failure) {
      // Only a sandbox that stopped ends a command in this way.
      const isGone = startedAt !== null || guest.gone.aborted;
      if (isGone) settle.failed(cutError(guestEnded, startedAt), 'sandbox_stopped');
      else settle.failed(notStarted(failure), failure.kind);
    },
  });
  function abandon(): void {
    settle.failed(cutError(ended, startedAt), String(ended.reason));
    command.close();
  }
  function endAlone(): void {
    settle.failed(endedError({ reason: 'session_ended' }), 'session_ended');
    command.close();
  }
  ended.addEventListener('abort', abandon, { once: true });
  record.ended.addEventListener('abort', endAlone, { once: true });
  // A caller may have asked for the end since the session was recorded.
  if (record.ended.aborted) endAlone();
  if (timeoutMs !== undefined && !record.ended.aborted) {
    const kill = () => {
      timedOut = true;
      command.signal(SIGKILL);
      const killed = () => settle.exited(SIGNALLED + SIGKILL, null);
      // A process that left the group may hold the output open.
      const close = (left: number) => {
        if (left > 0 && listener.isBehind?.() === true) {
          timers.push(setTimeout(() => close(left - 1), KILL_GRACE_MS));
          return;
        }
        command.close();
        timers.push(setTimeout(killed, CONFIRM_MS));
      };
      timers.push(setTimeout(() => close(MOST_GRACES), KILL_GRACE_MS));
    };
    timers.push(setTimeout(kill, timeoutMs));
  }
  return {
    command,
    outcome,
    async write(data) {
      record.received(data.length);
      await command.write(data);
    },
  };
}

const guestEnded = AbortSignal.abort('sandbox_stopped' satisfies EndReason);

function notStarted({ kind, errno, errnoName, message }: CommandFailure): ApiError {
  return new ApiError('command_not_started', message, { kind, errno, errno_name: errnoName });
}
