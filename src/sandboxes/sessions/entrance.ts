import type { FastifyReply, FastifyRequest } from 'fastify';
import { setMaxListeners } from 'node:events';
import { isNarrowed } from '../../access/access.js';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { onRevocation } from '../../access/revocation-watch.js';
import type { Context, WorkerContext } from '../../context.js';
import { lateEnvironment } from '../../engine/environment.js';
import { ApiError, type ErrorName } from '../../http/errors.js';
import { StreamLimit } from '../../http/sse.js';
import { Slots } from '../../fairness/slots.js';
import type { Guest } from '../../guest/guest.js';
import { withLateParts } from '../../guest/with-late-parts.js';
import { MovedAwayError } from './forward.js';
import { watchLabels } from './label-watch.js';
import { getWorkerOf, type SandboxKey, type SandboxPlace } from '../queries.js';
import { endCauseOf, type EndCause } from './end-cause.js';
import { endedError, type EndReason } from './ended-error.js';
import { OpenSessions } from './open-sessions.js';
import { untilHandedOver } from './until-handed-over.js';
import { untilResumed } from './until-resumed.js';
import { SessionRecorder } from './recorder.js';

/** Its beginning and its end are a transaction each. */
export const SESSION_UNITS = 4;
/** The processor time of a session that ends at once, beside its admission. */
const SESSION_MS = 10;

/** The refusals of `enter`. It resumes a sandbox that its idleness has paused, and so it is refused as a start is. */
export const ENTRANCE_REFUSALS: readonly ErrorName[] = [
  'quota_exceeded',
  'budget_exceeded',
  'sandbox_not_found',
  'invalid_state_transition',
  'not_supported',
];

/** A caller in a sandbox, for one request or connection. */
export interface Visit {
  readonly sandboxId: string;
  readonly guest: Guest;
  readonly recorder: SessionRecorder;
  /** Aborts with an EndReason. The sessions of the visit end then. */
  readonly ended: AbortSignal;
  /** Why the sandbox ended, for a visit that ended with it. */
  endCause(this: void): Promise<EndCause>;
  /** Ends the visit, also before the response is complete. */
  leave(this: void): void;
}

/** The admission into running sandboxes, for every route that reaches into one. */
export class Entrance {
  private readonly visits: StreamLimit;
  private readonly visitsOfSandbox: Slots;
  private readonly sessions: OpenSessions;

  constructor(private readonly ctx: WorkerContext) {
    const { maxVisits, maxVisitsOfSandbox } = ctx.settings;
    this.visits = new StreamLimit(maxVisits, 'too many connections into sandboxes are open: try again later');
    this.visitsOfSandbox = new Slots({ total: maxVisits, each: maxVisitsOfSandbox });
    this.sessions = new OpenSessions(ctx);
  }

  /** The visit ends with the response at the latest. */
  async enter(request: FastifyRequest, reply: FastifyReply, key: SandboxKey): Promise<Visit> {
    const { orgId, access, actor } = callerOf(request);
    const own = contextOf(request);
    const { labels: requiredLabels } = access;
    let found = await this.find(own, orgId, { ...key, requiredLabels });
    const { id: sandboxId, name } = found;

    const ended = new AbortController();
    const end = (reason: EndReason) => ended.abort(reason);
    const endWith = (signal: AbortSignal, reason: EndReason) => {
      signal.addEventListener('abort', () => end(reason), { once: true, signal: ended.signal });
      if (signal.aborted) end(reason);
    };
    endWith(this.acquire(orgId, sandboxId, reply), 'client_left');
    endWith(this.ctx.stopping, 'service_stopped');
    onRevocation(reply, () => end('key_revoked'));
    if (isNarrowed(access)) {
      endWith(watchLabels(own, { orgId, id: sandboxId }, requiredLabels, ended.signal), 'access_lost');
    }
    if (ended.signal.aborted) throw endedError(ended.signal);

    if (found.status !== 'running') {
      this.ctx.pace.charge(orgId, SESSION_MS);
      await untilResumed(own, callerOf(request), sandboxId, ended.signal);
      found = await this.find(own, orgId, { id: sandboxId, requiredLabels });
    }
    if (found.worker_id !== this.ctx.runtime.engineId) throw new MovedAwayError();
    const { run_id: runId } = found;
    if (found.lacks_parts) await untilHandedOver(own, orgId, sandboxId, ended.signal);
    const { guest: opened, release } = await this.open(sandboxId);
    const { late } = found;
    const guest = late
      ? withLateParts(opened, lateEnvironment(late, opened.environment), late.workdir)
      : opened;
    ended.signal.addEventListener('abort', release, { once: true });
    if (ended.signal.aborted) {
      release();
      throw endedError(ended.signal);
    }
    setMaxListeners(0, guest.gone);
    endWith(guest.gone, 'sandbox_stopped');
    const subject = { orgId, actor, sandboxId, name };
    const recorder = new SessionRecorder(own, subject, this.sessions, {
      countMore: () => request.countMore?.(SESSION_UNITS),
      admitted: async (work) => {
        this.ctx.pace.charge(orgId, SESSION_MS);
        return request.admission!.more(SESSION_UNITS, work);
      },
      onLost: () => end('cut_off'),
      onFilesEnded: () => end('session_ended'),
    });
    return {
      sandboxId,
      guest,
      recorder,
      ended: ended.signal,
      endCause: () => endCauseOf(own, { orgId, sandboxId, runId: runId! }),
      leave: () => end('client_left'),
    };
  }

  /** Resolves when the end of every session is in the audit trail. */
  async close(): Promise<void> {
    await this.sessions.close();
  }

  private async find({ pool }: Context, orgId: string, key: SandboxKey): Promise<SandboxPlace> {
    const sandbox = await getWorkerOf(pool, orgId, key);
    if (!sandbox) throw new ApiError('sandbox_not_found');
    const { status } = sandbox;
    if (status !== 'running' && !sandbox.resumes_for_session) {
      throw new ApiError('invalid_state_transition', `the sandbox is ${status}: start it first`, { status });
    }
    return sandbox;
  }

  /** Holds a slot until the client leaves. The returned signal aborts then. */
  private acquire(orgId: string, sandboxId: string, reply: FastifyReply): AbortSignal {
    const release = this.visitsOfSandbox.acquire(sandboxId);
    if (!release) {
      const message = 'too many connections into this sandbox are open: close some, or try again later';
      throw new ApiError('rate_limited', message, null, { headers: { 'retry-after': '5' } });
    }
    try {
      const left = this.visits.acquire(orgId, reply);
      left.addEventListener('abort', release, { once: true });
      if (left.aborted) release();
      return left;
    } catch (error) {
      release();
      throw error;
    }
  }

  private async open(sandboxId: string): ReturnType<WorkerContext['runtime']['openGuest']> {
    return this.ctx.runtime.openGuest(sandboxId).catch((cause: unknown) => {
      if (cause instanceof ApiError) throw cause;
      const message =
        'the sandbox cannot be entered now: it is stopping, or its engine does not answer; try again';
      throw new ApiError('not_ready', message, null, { cause, headers: { 'retry-after': '1' } });
    });
  }
}
