import { recordEvent } from '../../audit/events/record.js';
import type { Context } from '../../context.js';
import { announceEndedSession } from '../../db/changes.js';
import { ApiError } from '../../http/errors.js';
import type { Writer } from '../../idempotency/keyed.js';
import { inWrite } from '../../idempotency/write.js';
import { getWorkerOf, type SandboxKey } from '../queries.js';
import { requestEnd } from './queries.js';

/**
 * Asks for the end of a session, whichever process serves it. That process ends it and records the end with its counts.
 * A repetition changes nothing.
 */
export async function end(
  ctx: Context,
  caller: Writer,
  key: SandboxKey,
  sessionId: string,
): Promise<{ message: string }> {
  const { orgId, actor } = caller;
  return inWrite(ctx, caller, async (tx, batch) => {
    const sandbox = await getWorkerOf(tx, orgId, key);
    if (!sandbox) throw new ApiError('sandbox_not_found');
    const at = ctx.now();
    const session = await requestEnd(tx, orgId, sandbox.id, sessionId, at);
    if (!session) throw new ApiError('session_not_found');
    // Also for a repetition: the first notification may have been lost.
    await announceEndedSession(batch, sessionId);
    if (session.isFirst) {
      await recordEvent(batch, {
        orgId,
        type: 'sandbox_session_end_requested',
        actor,
        resourceId: sandbox.id,
        at,
        payload: session.details,
      });
    }
    return { message: 'the session ends' };
  });
}
