import { FULL_ACCESS, type Access } from '../access/access.js';
import { hashOf, makeKey, prefixOf } from '../access/key-secret.js';
import { recordEvent } from '../audit/events/record.js';
import type { EventActor } from '../audit/events/schema.js';
import type { Pool } from '../db/pool.js';
import { inTransaction, type EventSql } from '../db/transaction.js';
import { now, shortInstant, type Instant } from '../lib/instant.js';
import { newId } from '../lib/uuid.js';
import { insertKey, type ShownKeyRow } from './queries.js';

export interface NewKey {
  id: string;
  /** The key itself. No other answer has it. */
  key: string;
}

export interface KeyRequest {
  orgId: string;
  name: string;
  access: Access;
  actor: EventActor;
  at: Instant;
  /** The member of a personal token. */
  memberId?: string;
  /** The token of another organization that stands behind this one. */
  of?: { orgId: string; id: string };
}

/** Creates a key in the transaction of the caller. The requested access has been checked. */
export async function addKey(
  tx: EventSql,
  { orgId, name, access, actor, at, memberId, of }: KeyRequest,
): Promise<{ row: ShownKeyRow; key: string }> {
  const id = newId();
  const key = makeKey(memberId === undefined ? 'key' : 'token');
  const row = await insertKey(tx, {
    org_id: orgId,
    id,
    name,
    prefix: prefixOf(key),
    hash: hashOf(key),
    access,
    created_at: at,
    created_by: actor,
    member_id: memberId ?? null,
    of_org_id: of?.orgId ?? null,
    of_token_id: of?.id ?? null,
  });
  await recordEvent(tx, {
    orgId,
    type: 'api_key_created',
    actor,
    resourceId: id,
    at,
    payload: {
      api_key_id: id,
      name,
      prefix: row.prefix,
      scopes: row.scopes,
      labels: row.labels,
      cidrs: row.cidrs,
      expires_at: row.expires_at && shortInstant(row.expires_at),
      ...memberFact(row),
    },
  });
  return { row: { ...row, replaced_until: null }, key };
}

/** The member of a personal token, in the payload of an event. */
export function memberFact({ member_id }: Pick<ShownKeyRow, 'member_id'>): { member_id?: string } {
  return member_id === null ? {} : { member_id };
}

/** The same for the operator. Default: a key with all rights. */
export async function createKey(
  pool: Pool,
  orgId: string,
  name: string,
  actor: EventActor,
  access: Access = FULL_ACCESS,
): Promise<NewKey> {
  const { row, key } = await inTransaction(pool, (tx) =>
    addKey(tx, { orgId, name, access, actor, at: now() }),
  );
  return { id: row.id, key };
}
