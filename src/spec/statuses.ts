/** The states of a sandbox in answers. */
import { Type, type Static } from 'typebox';
import { DateTime, Field, Named, Nullable, Words } from '../http/schema.js';

export const STATUSES = ['created', 'starting', 'running', 'stopping', 'stopped', 'failed'] as const;
export const SandboxStatus = Words([...STATUSES], {
  title: 'SandboxStatus',
  description: 'The lifecycle status of a sandbox. `docs/lifecycle.md` has the transitions.',
});
export type SandboxStatus = Static<typeof SandboxStatus>;

export const SandboxStatusReason = Words(['scheduling', 'insufficient_capacity'], {
  title: 'SandboxStatusReason',
  description:
    'The reason for which a sandbox is still `starting`: it waits for a worker, or no worker has room.',
});
export type SandboxStatusReason = Static<typeof SandboxStatusReason>;

export const StopReason = Words(
  [
    ...(['requested', 'idle', 'max_duration', 'quota', 'command', 'oom', 'disk_full', 'engine'] as const),
    ...(['lost', 'start_failed', 'secret_violation', 'paused', 'budget'] as const),
  ],
  {
    title: 'SandboxStopReason',
    description: 'Why the latest run ended. `docs/lifecycle.md` describes each reason.',
  },
);
export type StopReason = Static<typeof StopReason>;

export const SandboxCommand = Named(
  'SandboxCommand',
  {
    status: Words(['running', 'exited', 'killed', 'stopped', 'unknown'], {
      description:
        '`exited`: it ended by itself. `killed`: a signal ended it. `stopped`: it ended with its sandbox. `unknown`: the sandbox is of an earlier release, which keeps no record.',
    }),
    exit_code: Nullable(
      Type.Integer({
        format: 'int32',
        description: 'The exit code. 128 and the number of a signal that ended it.',
      }),
    ),
    signal: Nullable(
      Type.Integer({ format: 'int32', description: 'The number of the signal that ended it.' }),
    ),
    oom_killed: Nullable(
      Type.Boolean({
        description: 'Whether it was killed because the sandbox had no memory left. Null: unknown.',
      }),
    ),
    ended_at: Field(Nullable(DateTime), 'The time of its end, by the clock of the machine of the sandbox.'),
  },
  'The command of the latest run. A sandbox runs on after it, unless `lifecycle.ends_with_command` is set.',
);
export type SandboxCommand = Static<typeof SandboxCommand>;
