import type { FastifyReply } from 'fastify';
import { isNarrowed } from '../../access/access.js';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { IDLE_MARK, RETRY, StreamLimit, withIdleMarks } from '../../http/sse.js';
import { sleep } from '../../lib/sleep.js';
import type { PacedSteps } from '../../fairness/paced-steps.js';
import type { LogChunk, LogQuery } from '../../engine/runtime.js';
import type { SecretMask } from '../../secrets/mask.js';
import type { Settings } from '../../settings.js';
import { MovedAwayError } from '../sessions/forward.js';
import { outputMask } from '../sessions/output-mask.js';
import { watchLabels } from '../sessions/label-watch.js';
import { getWorkerOf, type SandboxKey } from '../queries.js';
import { maskedChunks } from './mask.js';
import { encodeCursor, type LogCursor } from './cursor.js';

/** A notification gets lost while the database connection is down. */
const LOOK_EVERY_MS = 1_000;
/** A step ends after the line that reaches one of these. */
const STEP_CHARS = 32 * 1024;
const STEP_MS = 0.5;

interface Subject {
  orgId: string;
  id: string;
}

/** Bounded, because each follower holds a client connection and an engine connection. */
export class LogFollowers {
  private readonly limit: StreamLimit;

  constructor(
    { maxLogFollowers }: Pick<Settings, 'maxLogFollowers'>,
    private readonly steps: PacedSteps,
  ) {
    this.limit = new StreamLimit(maxLogFollowers, 'too many logs are followed: try again later');
  }

  /**
   * Server-sent events of the log. The event `end` follows the end of the run. A stream without `end` is incomplete.
   * The engine is read at the pace of the client, and of the time of the organization.
   */
  async follow(
    ctx: Context,
    orgId: string,
    key: SandboxKey,
    { masks, ...query }: LogQuery & { masks: boolean },
    reply: FastifyReply,
  ): Promise<AsyncIterable<string>> {
    const place = await getWorkerOf(ctx.pool, orgId, key);
    if (!place) throw new ApiError('sandbox_not_found');
    if (isElsewhere(ctx, place.worker_id)) throw new MovedAwayError();
    const mask = masks ? await outputMask(ctx, orgId, place.id) : undefined;
    const subject = { orgId, id: place.id };
    const gone = this.limit.acquire(orgId, reply);
    const signals = [gone, ctx.stopping];
    const { requiredLabels } = key;
    if (requiredLabels && isNarrowed({ labels: requiredLabels }))
      signals.push(watchLabels(ctx, subject, requiredLabels, gone));
    return follow(ctx, this.steps, subject, query, AbortSignal.any(signals), mask);
  }
}

async function* follow(
  ctx: Context,
  steps: PacedSteps,
  subject: Subject,
  query: LogQuery,
  signal: AbortSignal,
  mask: SecretMask | undefined,
): AsyncIterable<string> {
  // The first bytes make the server send the headers.
  yield ': following\n\n';
  const reached: LogCursor = { ...query.after };
  try {
    for await (const chunk of withIdleMarks(
      mask ? maskedChunks(chunks(ctx, subject, query, signal), mask) : chunks(ctx, subject, query, signal),
      ctx.settings.logKeepAliveMs,
    )) {
      if (signal.aborted) break;
      if (chunk === IDLE_MARK) yield ': nothing new\n\n';
      else yield* inSteps(steps, subject.orgId, chunk, reached);
    }
  } catch (error) {
    // A client that opens an incomplete stream again is forwarded.
    if (!signal.aborted && !(error instanceof MovedAwayError)) {
      ctx.log.error({ err: error, orgId: subject.orgId, sandboxId: subject.id }, 'following a log failed');
    }
    return;
  }
  if (!signal.aborted) yield 'event: end\ndata: {}\n\n';
  else if (ctx.stopping.aborted) yield RETRY;
}

async function* chunks(
  ctx: Context,
  subject: Subject,
  query: LogQuery,
  signal: AbortSignal,
): AsyncIterable<Iterable<LogChunk>> {
  await whileStarting(ctx, subject, signal);
  if (!signal.aborted) yield* ctx.runtime.logs(subject.id, query, signal);
}

async function whileStarting(ctx: Context, { orgId, id }: Subject, signal: AbortSignal): Promise<void> {
  let wake: () => void = () => undefined;
  const unsubscribe = ctx.changes.subscribe(id, () => wake());
  try {
    while (!signal.aborted) {
      // Subscribed before the read, so that no change falls between them.
      const changed = new Promise<void>((resolve) => (wake = resolve));
      const place = await getWorkerOf(ctx.pool, orgId, { id });
      if (place?.status !== 'starting') {
        if (isElsewhere(ctx, place?.worker_id ?? null)) throw new MovedAwayError();
        return;
      }
      const pause = new AbortController();
      await Promise.race([changed, sleep(LOOK_EVERY_MS, AbortSignal.any([signal, pause.signal]))]);
      pause.abort();
    }
  } finally {
    unsubscribe();
  }
}

function isElsewhere({ runtime }: Context, workerId: string | null): boolean {
  return workerId !== null && workerId !== runtime.engineId;
}

async function* inSteps(
  steps: PacedSteps,
  orgId: string,
  chunk: Iterable<LogChunk>,
  reached: LogCursor,
): AsyncIterable<string> {
  const lines = chunk[Symbol.iterator]();
  for (;;) {
    const text = await steps.step(orgId, () => renderSome(lines, reached));
    if (text === '') return;
    yield text;
  }
}

function renderSome(lines: Iterator<LogChunk>, reached: LogCursor): string {
  const end = performance.now() + STEP_MS;
  let text = '';
  while (text.length < STEP_CHARS && (text === '' || performance.now() < end)) {
    const { done, value } = lines.next();
    if (done === true) break;
    text += render(value, reached);
  }
  return text;
}

function render({ source, ts, text, position }: LogChunk, reached: LogCursor): string {
  if (source !== 'output') reached[source] = position;
  return `event: log\nid: ${encodeCursor(reached)}\ndata: ${JSON.stringify({ source, ts, text })}\n\n`;
}
