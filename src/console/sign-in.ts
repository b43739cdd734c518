import type { Caller } from '../access/caller.js';
import type { SecretRow } from '../access/key-queries.js';
import { hashOf } from '../access/key-secret.js';
import { csrfTokenOf, SESSION_TOKEN, type Session } from '../access/session-cookie.js';
import { recordEvent } from '../audit/events/record.js';
import type { Context } from '../context.js';
import { inTransaction } from '../db/transaction.js';
import { lockCallerKey } from '../keys/lock-caller-key.js';
import { addMillis, microsOf, shortInstant } from '../lib/instant.js';
import { newId } from '../lib/uuid.js';
import { deleteOldest, insertSession } from './queries.js';

const LIFETIME_MS = 12 * 60 * 60_000;
const MOST_OF_KEY = 100;

/** Opens a session that ends with its key. The token is returned only here. */
export async function signIn(
  { pool, now }: Pick<Context, 'pool' | 'now'>,
  caller: Caller,
  key: SecretRow,
): Promise<Session & { token: string; lifetimeSecs: number }> {
  const { orgId, actor } = caller;
  const token = SESSION_TOKEN.make();
  const hash = hashOf(token);
  const at = now();
  const ends = [addMillis(at, LIFETIME_MS), key.expires_at, key.until].filter((end) => end !== null);
  const expiresAt = ends.toSorted()[0]!;
  const id = newId();
  const ofKey = { api_key_id: key.id, name: key.name, prefix: key.prefix };
  await inTransaction(pool, async (tx) => {
    await lockCallerKey(tx, caller, at, { changed: key.id, scope: 'any' });
    for (const oldest of await deleteOldest(tx, orgId, key.id, { keep: MOST_OF_KEY - 1 })) {
      await recordEvent(tx, {
        orgId,
        type: 'console_session_ended',
        actor,
        resourceId: key.id,
        at,
        payload: { session_id: oldest, ...ofKey, reason: 'replaced' },
      });
    }
    await insertSession(tx, {
      org_id: orgId,
      hash,
      id,
      key_id: key.id,
      secret_prefix: key.secret_prefix,
      created_at: at,
      expires_at: expiresAt,
    });
    await recordEvent(tx, {
      orgId,
      type: 'console_session_opened',
      actor,
      resourceId: key.id,
      at,
      payload: { session_id: id, ...ofKey, expires_at: shortInstant(expiresAt) },
    });
  });
  const lifetimeSecs = Number((microsOf(expiresAt) - microsOf(at)) / 1_000_000n);
  return { hash, csrfToken: csrfTokenOf(token), expiresAt, token, lifetimeSecs };
}
