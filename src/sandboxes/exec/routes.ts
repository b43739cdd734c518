import { Buffer } from 'node:buffer';
import type { FastifyReply, FastifyRequest } from 'fastify';
import type { Readable } from 'node:stream';
import { Type } from 'typebox';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { ApiError } from '../../http/errors.js';
import { longJson } from '../../http/long-json.js';
import { preferredType } from '../../http/preferred-type.js';
import { answersToWrite, type App } from '../../http/route.js';
import { sendJson } from '../../http/send-json.js';
import { sendEvents } from '../../http/sse.js';
import { whenOver } from '../../http/when-over.js';
import { inFileWrite } from '../../idempotency/file-write.js';
import { writerOf } from '../../idempotency/keyed.js';
import { WriteHeaders } from '../../idempotency/schema.js';
import { Slots } from '../../fairness/slots.js';
import type { PacedSteps } from '../../fairness/paced-steps.js';
import { ADDRESSES, sandboxKeyOf } from '../sessions/address.js';
import { ENTRANCE_REFUSALS, type Entrance, type Visit } from '../sessions/entrance.js';
import { outputMask } from '../sessions/output-mask.js';
import { acceptEnvMap } from '../../spec/env-schema.js';
import { badField } from './read-command.js';
import { run } from './run.js';
import { EXEC_BODY_LIMIT, ExecRequest, ExecResult, STORED_OUTPUT_BYTES } from './schema.js';
import { stream, type InStep, STREAM_WINDOW } from './stream.js';

const MIB = 1024 * 1024;
/** The input and output that commands may have in memory. */
export const MEMORY = { total: 256 * MIB, each: 128 * MIB };
/** How long a client of an event stream may read nothing. */
const STALL_MS = 5 * 60_000;
const TYPES = ['application/json', 'text/event-stream'] as const;

const response = {
  ...answersToWrite(ExecResult, ...ENTRANCE_REFUSALS, 'command_not_started', 'ended_with_sandbox'),
  200: {
    description:
      'The end of the command with its output, or server-sent events: `started` with `pid`, `stdout` and `stderr` with `text` or `base64`, then `exited` with `exit_code`, `timed_out`, `oom_killed` and `duration_ms`, or `failed` with `error`.',
    content: {
      'application/json': { schema: ExecResult },
      'text/event-stream': { schema: Type.Unsafe<Readable>({ type: 'string' }) },
    },
  },
};

/** Commands for callers without a client. */
export function execRoutes(app: App, entrance: Entrance, steps: PacedSteps): void {
  const memory = new Slots(MEMORY);

  async function within<T>(
    request: FastifyRequest,
    reply: FastifyReply,
    outputBytes: number,
    work: (visit: Visit) => Promise<T>,
  ): Promise<T> {
    const { stdin = '', stdin_base64: base64 = '' } = request.body as ExecRequest;
    const bytes = Buffer.byteLength(stdin) + base64.length + outputBytes;
    const visit = await entrance.enter(request, reply, sandboxKeyOf(request));
    const release = memory.acquire(callerOf(request).orgId, bytes);
    if (!release) {
      const message = 'the commands that run now hold too much input and output: try again later';
      throw new ApiError('rate_limited', message, null, { headers: { 'retry-after': '5' } });
    }
    whenOver(reply, release);
    return work(visit);
  }

  async function answer(request: FastifyRequest, reply: FastifyReply): Promise<ExecResult> {
    const body = request.body as ExecRequest;
    const { orgId } = callerOf(request);
    const maskFor = async ({ sandboxId }: Visit) =>
      body.mask_secrets ? outputMask(contextOf(request), orgId, sandboxId, body.env) : undefined;
    const inStep: InStep = (work) => steps.step(orgId, work);
    const isKeyed = request.headers['idempotency-key'] !== undefined;
    if (preferredType(request, TYPES) === 'text/event-stream') {
      if (isKeyed) {
        throw new ApiError(
          'invalid_request',
          'an event stream cannot be repeated: leave Idempotency-Key out, or accept application/json',
        );
      }
      if (body.max_output_bytes !== undefined) {
        throw badField('max_output_bytes', 'an event stream has all output: leave max_output_bytes out');
      }
      const events = await within(request, reply, STREAM_WINDOW, async (visit) =>
        stream(visit, body, inStep, await maskFor(visit)),
      );
      return sendEvents(reply, events, STALL_MS) as never;
    }
    const outputBytes = body.max_output_bytes ?? STORED_OUTPUT_BYTES;
    if (isKeyed && outputBytes > STORED_OUTPUT_BYTES) {
      throw badField(
        'max_output_bytes',
        `an Idempotency-Key stores at most ${STORED_OUTPUT_BYTES} bytes of output: ask for less, or leave the key out`,
      );
    }
    const result = await inFileWrite(contextOf(request), writerOf(request, reply), () =>
      within(request, reply, outputBytes, async (visit) => run(visit, body, inStep, await maskFor(visit))),
    );
    return sendJson(reply, await longJson(steps, orgId, result)) as never;
  }

  for (const { base, suffix, params } of ADDRESSES) {
    app.post(
      `${base}/exec`,
      {
        bodyLimit: EXEC_BODY_LIMIT,
        preValidation: acceptEnvMap,
        schema: {
          operationId: `exec_sandbox${suffix}`,
          scope: 'sandboxes:exec',
          summary: 'Run a command in a sandbox',
          description:
            'Runs a program and answers when it has ended. With `Accept: text/event-stream` its output is sent while it runs. A client that leaves ends the command.',
          tags: ['sandboxes'],
          params,
          headers: WriteHeaders,
          body: ExecRequest,
          response,
        },
      },
      answer,
    );
  }
}
