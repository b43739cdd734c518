import type { FastifyReply, FastifyRequest } from 'fastify';
import { setMaxListeners } from 'node:events';
import { isNarrowed } from '../../access/access.js';
import { callerOf } from '../../access/caller.js';
import { contextOf } from '../../access/request-context.js';
import { onRevocation } from '../../access/revocation-watch.js';
import type { WorkerContext } from '../../context.js';
import { ApiError } from '../../http/errors.js';
import { StreamLimit } from '../../http/sse.js';
import type { Guest } from '../../runtimes/guest/guest.js';
import { MovedAwayError } from '../forward.js';
import { watchLabels } from '../label-watch.js';
import { getWorkerOf, type SandboxKey } from '../queries.js';
import { OpenSessions, SessionRecorder } from './recorder.js';

/** Why a visit ended. */
export type EndReason = 'client_left' | 'key_revoked' | 'access_lost' | 'sandbox_stopped' | 'service_stopped';

/** A caller in a sandbox, for one request or connection. */
export interface Visit {
  readonly sandboxId: string;
  readonly guest: Guest;
  readonly recorder: SessionRecorder;
  /** Aborts with an EndReason. The sessions of the visit end then. */
  readonly ended: AbortSignal;
  /** Ends the visit, also before the response is complete. */
  leave(): void;
}

/** The admission into running sandboxes, for every route that reaches into one. */
export class Entrance {
  private readonly limit: StreamLimit;
  private readonly sessions: OpenSessions;

  constructor(private readonly ctx: WorkerContext) {
    const { maxVisits } = ctx.settings;
    this.limit = new StreamLimit(maxVisits, 'too many connections into sandboxes are open: try again later');
    this.sessions = new OpenSessions(ctx);
    setMaxListeners(0, ctx.stopping);
  }

  /** The visit ends with the response at the latest. */
  async enter(request: FastifyRequest, reply: FastifyReply, key: SandboxKey): Promise<Visit> {
    const { orgId, access, actor } = callerOf(request);
    const own = contextOf(request);
    const { labels: requiredLabels } = access;
    const sandbox = await getWorkerOf(own.pool, orgId, { ...key, requiredLabels });
    if (!sandbox) throw new ApiError('sandbox_not_found');
    const { id: sandboxId, name, status, worker_id: workerId } = sandbox;
    if (status !== 'running') {
      throw new ApiError('invalid_state_transition', `the sandbox is ${status}: start it first`, { status });
    }
    if (workerId !== this.ctx.runtime.engineId) throw new MovedAwayError();

    const ended = new AbortController();
    const end = (reason: EndReason) => ended.abort(reason);
    const clientLeft = this.limit.acquire(orgId, reply);
    clientLeft.addEventListener('abort', () => end('client_left'), { once: true });
    const { stopping } = this.ctx;
    const onStopping = () => end('service_stopped');
    stopping.addEventListener('abort', onStopping, { once: true });
    ended.signal.addEventListener('abort', () => stopping.removeEventListener('abort', onStopping), {
      once: true,
    });
    if (stopping.aborted) onStopping();
    onRevocation(reply, () => end('key_revoked'));
    if (isNarrowed(access)) {
      const subject = { orgId, id: sandboxId };
      watchLabels(own, subject, requiredLabels, ended.signal).addEventListener(
        'abort',
        () => end('access_lost'),
        {
          once: true,
        },
      );
    }

    const { guest, release } = await this.ctx.runtime.openGuest(sandboxId);
    setMaxListeners(0, guest.gone);
    const onGone = () => end('sandbox_stopped');
    guest.gone.addEventListener('abort', onGone, { once: true });
    if (guest.gone.aborted) onGone();
    const over = () => {
      guest.gone.removeEventListener('abort', onGone);
      release();
    };
    ended.signal.addEventListener('abort', over, { once: true });
    if (ended.signal.aborted) over();
    const recorder = new SessionRecorder(own, { orgId, actor, sandboxId, name }, this.sessions);
    return { sandboxId, guest, recorder, ended: ended.signal, leave: () => end('client_left') };
  }

  /** Resolves when the end of every session is in the audit trail. */
  async close(): Promise<void> {
    await this.sessions.close();
  }
}
