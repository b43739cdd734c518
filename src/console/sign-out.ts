import type { Caller } from '../access/caller.js';
import type { Session } from '../access/session-cookie.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { deleteSession } from './queries.js';

export async function signOut(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  { orgId, actor, key }: Caller,
  { hash }: Session,
): Promise<void> {
  await inTransaction(pool, async (tx) => {
    const id = await deleteSession(tx, orgId, hash);
    if (id === undefined || !key) return;
    const { id: api_key_id, name, prefix } = key;
    await recordEvent(tx, {
      orgId,
      type: 'console_session_ended',
      actor,
      resourceId: api_key_id,
      at: now(),
      payload: { session_id: id, api_key_id, name, prefix, reason: 'signed_out' },
    });
  });
}
