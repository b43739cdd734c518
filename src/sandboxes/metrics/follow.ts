import type { FastifyReply } from 'fastify';
import { isNarrowed } from '../../access/access.js';
import type { Context } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { RETRY, StreamLimit } from '../../http/sse.js';
import { sleep } from '../../lib/sleep.js';
import { watchLabels } from '../sessions/label-watch.js';
import type { SandboxKey } from '../queries.js';
import { getMeasured, type MeasuredSandbox } from './queries.js';
import { sampleIntervalMs, showSample } from './show.js';

/** Each takes a sample a second at most. */
export const MOST_STREAMS = 200;
/** A notification gets lost while the database connection is down. */
const LOOK_EVERY_MS = 10_000;

export class MetricsFollowers {
  private readonly limit = new StreamLimit(MOST_STREAMS, 'too many metrics are followed: try again later');

  /**
   * Server-sent events: `sample` with each sample, and `end` when the run has ended or sampling is off. A stream
   * without `end` is incomplete.
   */
  async follow(
    ctx: Context,
    orgId: string,
    key: SandboxKey,
    reply: FastifyReply,
  ): Promise<AsyncIterable<string>> {
    const sandbox = await getMeasured(ctx.pool, orgId, key);
    if (!sandbox) throw new ApiError('sandbox_not_found');
    const gone = this.limit.acquire(orgId, reply);
    const signals = [gone, ctx.stopping];
    const { requiredLabels } = key;
    if (requiredLabels && isNarrowed({ labels: requiredLabels }))
      signals.push(watchLabels(ctx, { orgId, id: sandbox.id }, requiredLabels, gone));
    return samplesOf(ctx, orgId, sandbox, AbortSignal.any(signals));
  }
}

async function* samplesOf(
  ctx: Context,
  orgId: string,
  { id }: MeasuredSandbox,
  signal: AbortSignal,
): AsyncIterable<string> {
  // The first bytes make the server send the headers.
  yield ': following\n\n';
  let lookAt = -Infinity;
  const unsubscribe = ctx.changes.subscribe(id, () => (lookAt = -Infinity));
  let sandbox: MeasuredSandbox | undefined;
  let sentAt = -Infinity;
  try {
    while (!signal.aborted) {
      if (performance.now() >= lookAt) {
        lookAt = performance.now() + LOOK_EVERY_MS;
        sandbox = await getMeasured(ctx.pool, orgId, { id });
      }
      const intervalMs = sandbox && sampleIntervalMs(sandbox);
      // Without the lease this process has no samples, and the client connects again to one that has it.
      if (!sandbox?.subject || intervalMs == null || !ctx.engineLease.isHeld()) break;
      const use = await ctx.use.sample(sandbox.subject);
      if (use && use.at !== sentAt) {
        sentAt = use.at;
        yield `event: sample\ndata: ${JSON.stringify(showSample(use))}\n\n`;
      } else {
        yield ': nothing new\n\n';
      }
      await sleep(Math.min(intervalMs, LOOK_EVERY_MS), signal);
    }
  } catch (error) {
    if (!signal.aborted) {
      ctx.log.error({ err: error, orgId, sandboxId: id }, 'following the metrics of a sandbox failed');
    }
    return;
  } finally {
    unsubscribe();
  }
  if (ctx.stopping.aborted || !ctx.engineLease.isHeld()) yield RETRY;
  else if (!signal.aborted) yield 'event: end\ndata: {}\n\n';
}
