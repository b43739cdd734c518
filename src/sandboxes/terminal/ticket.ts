import type { Caller } from '../../access/caller.js';
import { hashOf } from '../../access/key-secret.js';
import { invalidTicket } from '../../access/terminal-ticket.js';
import type { Context } from '../../context.js';
import { addMillis, shortInstant } from '../../lib/instant.js';
import { tokenKind } from '../../lib/token.js';
import { commandOf } from '../exec/read-command.js';
import { insertTicket, takeTicket } from './queries.js';
import type { TerminalRequest } from './schema.js';

const LIFETIME_MS = 60_000;
const TICKET = tokenKind('skt_');

export async function makeTicket(
  { pool, now, keyring }: Context,
  { orgId, key }: Caller,
  sandboxId: string,
  request: TerminalRequest,
  session: { hash: Buffer } | null,
): Promise<{ ticket: string; path: string; expires_at: string }> {
  if (!key && !session) throw new Error('a ticket needs a key or a session');
  // Refuses variables with bad names now.
  commandOf({ cmd: '/bin/sh', ...request }, 0);
  const ticket = TICKET.make();
  const expiresAt = addMillis(now(), LIFETIME_MS);
  await insertTicket(pool, {
    org_id: orgId,
    hash: hashOf(ticket),
    sandbox_id: sandboxId,
    key_id: key?.id ?? null,
    secret_prefix: key?.secret_prefix ?? null,
    session_hash: session?.hash ?? null,
    sealed: keyring().seal(JSON.stringify(request), sandboxId),
    expires_at: expiresAt,
  });
  return { ticket, path: `/v1/sandboxes/${sandboxId}/terminal`, expires_at: shortInstant(expiresAt) };
}

/** The second of two terminals with one ticket gets an ApiError. */
export async function useTicket(
  { pool, now, keyring }: Context,
  orgId: string,
  sandboxId: string,
  hash: Buffer,
): Promise<TerminalRequest> {
  const sealed = await takeTicket(pool, orgId, { hash, sandboxId, at: now() });
  const text = sealed && keyring().open(sealed, sandboxId);
  if (text === undefined) throw invalidTicket();
  return JSON.parse(text) as TerminalRequest;
}
