import type { RunCommand } from '../../runs/queries.js';
import type { CommandState } from '../../guest/command-end.js';
import type { Exit } from '../../engine/runtime.js';
import { shortInstant, type Instant } from '../../lib/instant.js';
import type { SandboxRow } from '../row.js';
import type { SandboxCommand } from '../../spec/statuses.js';

const SIGKILL_CODE = 137;
const NOTHING = { exit_code: null, signal: null, oom_killed: null, ended_at: null };

export const RUNNING_COMMAND: SandboxCommand = { status: 'running', ...NOTHING };

/** The command after a look at its run, which continues. Undefined: nothing is new. */
export function commandAfterLook(state: CommandState, startedAt: Instant): SandboxCommand | undefined {
  if (state === 'running') return undefined;
  if (state === 'unknown') return { status: 'unknown', ...NOTHING };
  const { exitCode, signal, outOfMemory, endedAt } = state;
  return {
    status: signal === null ? 'exited' : 'killed',
    exit_code: exitCode,
    signal,
    oom_killed: outOfMemory,
    // The clocks of two machines may differ.
    ended_at: shortInstant(endedAt > startedAt ? endedAt : startedAt),
  };
}

/** The command of a sandbox whose saved memory is given up: nothing ran in it since the pause. */
export function commandWithoutMemory({
  command,
  paused_at,
}: Pick<SandboxRow, 'command' | 'paused_at'>): SandboxCommand | null {
  return commandAfterRun(command, { command: null }, { exit: null, wasAsked: true, stoppedAt: paused_at });
}

/**
 * The command after the end of its run. `exit`: of process 1, whose code is that of the command when the run ends with
 * it.
 */
export function commandAfterRun(
  before: SandboxCommand | null,
  run: { command: RunCommand | null },
  { exit, wasAsked, stoppedAt }: { exit: Exit | null; wasAsked: boolean; stoppedAt: Instant | null },
): SandboxCommand | null {
  if (before?.status !== 'running') return before;
  const ended_at = stoppedAt && shortInstant(stoppedAt);
  if (run.command !== 'ends_run' || exit === null) return { status: 'stopped', ...NOTHING, ended_at };
  return {
    status: wasAsked ? 'stopped' : 'exited',
    exit_code: exit.code,
    // Process 1 passes the code on. 128 and more may also be a code of the command.
    signal: null,
    oom_killed: exit.outOfMemory && exit.code === SIGKILL_CODE,
    ended_at,
  };
}
