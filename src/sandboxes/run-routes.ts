import type { FastifyRequest } from 'fastify';
import { Type, type TObject } from 'typebox';
import { contextOf } from '../access/request-context.js';
import type { Context } from '../context.js';
import type { ErrorName } from '../http/errors.js';
import { answersToWrite, type App } from '../http/route.js';
import { Words } from '../http/schema.js';
import { writerOf, type Writer } from '../idempotency/keyed.js';
import { WriteHeaders } from '../idempotency/schema.js';
import type { Instant } from '../lib/instant.js';
import { showToSdk } from '../spec/sdk-form.js';
import { pauseSandbox } from './lifecycle/pause.js';
import { restartSandbox } from './lifecycle/restart.js';
import { resumeSandbox } from './lifecycle/resume.js';
import { startSandbox } from './lifecycle/start.js';
import { stopSandbox } from './lifecycle/stop.js';
import type { WaitQuery, Waiters } from './lifecycle/wait.js';
import type { SandboxKey } from './queries.js';
import { SandboxResponse } from './row.js';

type WaitWord = NonNullable<WaitQuery['wait_for']>;

/** The parameters of a request that can wait for a status. */
function waitParameters(word: WaitWord, title: string, description: string) {
  return {
    wait_for: Type.Optional(Words([word], { title, description })),
    wait_timeout: Type.Optional(
      Type.Integer({
        format: 'int64',
        minimum: 0,
        description:
          'The longest hold in seconds, at most 120. It needs `wait_for`. After it the answer is the sandbox as it is.',
      }),
    ),
  };
}

export const waitFor = {
  running: waitParameters(
    'running',
    'SandboxWaitFor',
    'Holds the answer until the sandbox is running or failed.',
  ),
  stopped: waitParameters(
    'stopped',
    'SandboxWaitForStopped',
    'Holds the answer until the sandbox has stopped.',
  ),
  paused: waitParameters(
    'paused',
    'SandboxWaitForPaused',
    'Holds the answer until the sandbox is paused, or runs on because that failed.',
  ),
};

interface Verb {
  summary: string;
  description: string;
  waitsFor: WaitWord;
  errors: readonly ErrorName[];
  act: (
    ctx: Context,
    caller: Writer,
    key: SandboxKey,
    begin: { queue: boolean; wantedUntil: Instant | null },
  ) => Promise<SandboxResponse>;
}

const BEGINS: readonly ErrorName[] = ['quota_exceeded', 'budget_exceeded'];

/** The requests that begin and end runs. */
const VERBS: Readonly<Record<'start' | 'stop' | 'pause' | 'resume' | 'restart', Verb>> = {
  start: {
    summary: 'Start a sandbox that does not run',
    description:
      'Begins a new run and answers at once, unless `wait_for` is given. A sandbox that is stopping is refused. With `wait_for` its new run is admitted and begins when it has stopped.',
    waitsFor: 'running',
    errors: BEGINS,
    act: startSandbox,
  },
  stop: {
    summary: 'Stop a sandbox',
    description:
      'Asks for the end of the run and answers at once, unless `wait_for` is given. A sandbox that is stopped already is returned as it is.',
    waitsFor: 'stopped',
    errors: [],
    act: stopSandbox,
  },
  pause: {
    summary: 'Pause a sandbox: its memory goes to the disk',
    description:
      'An extension. Saves the memory of a running sandbox, ends the run, and answers at once unless `wait_for` is given. It is then `stopped` with `paused_at`, and its next start continues it. Only its storage is billed meanwhile. A paused sandbox is returned as it is. A runtime that cannot save memory answers 501.',
    waitsFor: 'paused',
    errors: ['not_supported'],
    act: pauseSandbox,
  },
  resume: {
    summary: 'Resume a paused sandbox',
    description:
      'An extension. Begins a run that continues the memory of a paused sandbox, and answers at once unless `wait_for` is given. A refusal by a quota or a budget leaves it paused. A sandbox that runs or starts is returned as it is.',
    waitsFor: 'running',
    errors: BEGINS,
    act: resumeSandbox,
  },
  restart: {
    summary: 'Restart a sandbox',
    description:
      'Ends the run and begins a new one, and answers at once unless `wait_for` is given. A sandbox that does not run is started.',
    waitsFor: 'running',
    errors: BEGINS,
    act: restartSandbox,
  },
};

interface Addressed {
  path: string;
  params: TObject;
  suffix: string;
  keyOf: (request: FastifyRequest) => SandboxKey;
}

export function runRoutes(app: App, waiters: Waiters, { path, params, suffix, keyOf }: Addressed): void {
  for (const [name, { summary, description, waitsFor, errors, act }] of Object.entries(VERBS)) {
    app.post(
      `${path}/${name}`,
      {
        onSend: showToSdk,
        schema: {
          operationId: operationOf(name, suffix),
          scope: 'sandboxes:write',
          summary,
          description,
          tags: ['sandboxes'],
          params,
          querystring: Type.Object(waitFor[waitsFor], { additionalProperties: false }),
          headers: WriteHeaders,
          response: answersToWrite(
            SandboxResponse,
            ...errors,
            'sandbox_not_found',
            'invalid_state_transition',
          ),
        },
      },
      (request, reply) => {
        const caller = writerOf(request, reply);
        const queue = request.query.wait_for !== undefined;
        return waiters.hold(contextOf(request), caller, request.query, reply, (wantedUntil) =>
          act(contextOf(request), caller, keyOf(request), { queue, wantedUntil }),
        );
      },
    );
  }
}

/** The contract names the requests by name without the noun, apart from the restart. */
function operationOf(verb: string, suffix: string): string {
  return verb === 'restart' && suffix !== '_sandbox' ? `restart_sandbox${suffix}` : `${verb}${suffix}`;
}
