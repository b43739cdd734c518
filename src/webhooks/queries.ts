import type { EventActor } from '../audit/events/schema.js';
import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';
import type { Sealed } from '../secrets/keyring.js';
import type { WebhookFormat, WebhookResponse } from './schema.js';

export interface WebhookRow {
  org_id: string;
  id: string;
  url: string;
  description: string | null;
  event_types: string[];
  format: WebhookFormat;
  status: WebhookResponse['status'];
  disabled_reason: WebhookResponse['disabled_reason'];
  sealed: Sealed | null;
  /** Replaced secrets, newest first. They sign too until `old_until`. */
  old_sealed: Sealed[];
  old_until: Instant | null;
  position: number;
  failures: number;
  failing_since: Instant | null;
  resume_at: Instant | null;
  created_at: Instant;
  created_by: EventActor;
  updated_at: Instant;
}

type RawRow = Omit<WebhookRow, 'sealed' | 'old_sealed'> & {
  [column: string]: unknown;
  key_id: string | null;
  sealed: Buffer | null;
  old_key_ids: string[];
  old_sealed: Buffer[];
};

const COLUMNS = `org_id, id, url, description, event_types, format, status, disabled_reason, key_id, sealed, old_key_ids,
  old_sealed, old_until, position, failures, failing_since, resume_at, created_at, created_by, updated_at`;

function toRow({ key_id, sealed, old_key_ids, old_sealed, ...row }: RawRow): WebhookRow {
  return {
    ...row,
    sealed: key_id === null || sealed === null ? null : { keyId: key_id, bytes: sealed },
    old_sealed: old_sealed.map((bytes, index) => ({ keyId: old_key_ids[index]!, bytes })),
  };
}

/**
 * The webhook starts at the end of the log. `created_at` is never later than the database clock: a clock that is ahead
 * would make new events count as older than the webhook.
 */
export async function insertWebhook(
  tx: Sql,
  webhook: Pick<
    WebhookRow,
    'org_id' | 'id' | 'url' | 'description' | 'event_types' | 'format' | 'created_at' | 'created_by'
  > & { sealed: Sealed },
): Promise<WebhookRow> {
  const { rows } = await tx.query<RawRow>(
    `insert into webhooks
       (org_id, id, url, description, event_types, status, key_id, sealed, position, created_at, updated_at, created_by, format)
     values ($1, $2, $3, $4, $5, 'active', $6, $7,
       coalesce((select seq from event_chains where org_id = $1), 0), least($8, clock_timestamp()), $8, $9, $10)
     returning ${COLUMNS}`,
    [
      webhook.org_id,
      webhook.id,
      webhook.url,
      webhook.description,
      webhook.event_types,
      webhook.sealed.keyId,
      webhook.sealed.bytes,
      webhook.created_at,
      JSON.stringify(webhook.created_by),
      webhook.format,
    ],
  );
  return toRow(rows[0]!);
}

/** Locks the organization until the transaction ends, so that no other webhook is added meanwhile. */
export async function countWebhooks(tx: Sql, orgId: string): Promise<number> {
  await tx.query('select 1 from orgs where id = $1 for update', [orgId]);
  const { rows } = await tx.query<{ count: number }>(
    'select count(*) from webhooks where org_id = $1 and deleted_at is null',
    [orgId],
  );
  return rows[0]!.count;
}

export async function getWebhook(sql: Sql, orgId: string, id: string): Promise<WebhookRow | undefined> {
  return first(sql, orgId, id, '');
}

export async function lockWebhook(tx: Sql, orgId: string, id: string): Promise<WebhookRow | undefined> {
  return first(tx, orgId, id, 'for update');
}

/** Undefined also if another transaction holds the lock: that one does the same work. */
export async function lockWebhookIfFree(tx: Sql, orgId: string, id: string): Promise<WebhookRow | undefined> {
  return first(tx, orgId, id, 'for update skip locked');
}

async function first(sql: Sql, orgId: string, id: string, lock: string): Promise<WebhookRow | undefined> {
  const { rows } = await sql.query<RawRow>(
    `select ${COLUMNS} from webhooks where org_id = $1 and id = $2 and deleted_at is null ${lock}`,
    [orgId, id],
  );
  return rows[0] && toRow(rows[0]);
}

/** Oldest first, after `after` (created_at, id). */
export async function getWebhooks(
  sql: Sql,
  orgId: string,
  after: readonly [Instant, string] | undefined,
  limit: number,
): Promise<WebhookRow[]> {
  const { rows } = await sql.query<RawRow>(
    `select ${COLUMNS} from webhooks
     where org_id = $1 and deleted_at is null and ($2::timestamptz is null or (created_at, id) > ($2, $3::uuid))
     order by created_at, id
     limit $4`,
    [orgId, after?.[0] ?? null, after?.[1] ?? null, limit],
  );
  return rows.map(toRow);
}

/** The webhooks of all organizations that have something to send now. */
export async function listActive(
  sql: Sql,
  at: Instant,
): Promise<Pick<WebhookRow, 'org_id' | 'id' | 'failures'>[]> {
  const { rows } = await sql.query<Pick<WebhookRow, 'org_id' | 'id' | 'failures'>>(
    `select w.org_id, w.id, w.failures
     from webhooks w
     where w.status = 'active' and (w.resume_at is null or w.resume_at <= $1)
       and (exists (select from event_chains c where c.org_id = w.org_id and c.seq > w.position)
         or exists (
           select from webhook_deliveries d
           where d.org_id = w.org_id and d.webhook_id = w.id and d.status = 'pending' and d.due_at <= $1
             -- Both values by the index: the webhook may have any number of deliveries that are not due.
             and d.refused in (false, true)))`,
    [at],
  );
  return rows;
}

export async function updateWebhookRow(
  tx: Sql,
  { org_id, id, url, description, event_types, format, status, disabled_reason, updated_at }: WebhookRow,
): Promise<WebhookRow> {
  // A change also closes the circuit, so that it is tried at once.
  const { rows } = await tx.query<RawRow>(
    `update webhooks
     set url = $3, description = $4, event_types = $5, status = $6, disabled_reason = $7, updated_at = $8, format = $9,
       failures = 0, failing_since = null, resume_at = null
     where org_id = $1 and id = $2
     returning ${COLUMNS}`,
    [org_id, id, url, description, event_types, status, disabled_reason, updated_at, format],
  );
  return toRow(rows[0]!);
}

export async function replaceSecrets(
  tx: Sql,
  {
    org_id,
    id,
    sealed,
    old_sealed,
    old_until,
  }: Pick<WebhookRow, 'org_id' | 'id' | 'sealed' | 'old_sealed' | 'old_until'>,
): Promise<WebhookRow> {
  const { rows } = await tx.query<RawRow>(
    `update webhooks
     set key_id = $3, sealed = $4, old_key_ids = $5, old_sealed = $6, old_until = $7
     where org_id = $1 and id = $2
     returning ${COLUMNS}`,
    [
      org_id,
      id,
      sealed?.keyId ?? null,
      sealed?.bytes ?? null,
      old_sealed.map(({ keyId }) => keyId),
      old_sealed.map(({ bytes }) => bytes),
      old_sealed.length === 0 ? null : old_until,
    ],
  );
  return toRow(rows[0]!);
}

/** Hides the webhook and erases its URL and secrets. */
export async function markDeleted(tx: Sql, orgId: string, id: string, at: Instant): Promise<void> {
  await tx.query(
    `update webhooks
     set deleted_at = $3, status = 'disabled', url = '', key_id = null, sealed = null, old_key_ids = '{}',
       old_sealed = '{}', old_until = null
     where org_id = $1 and id = $2`,
    [orgId, id, at],
  );
}

/** The deleted webhooks of all organizations, which may have deliveries left. */
export async function listDeleted(sql: Sql): Promise<Pick<WebhookRow, 'org_id' | 'id'>[]> {
  const { rows } = await sql.query<Pick<WebhookRow, 'org_id' | 'id'>>(
    'select org_id, id from webhooks where deleted_at is not null',
  );
  return rows;
}

/** Deletes the row of a deleted webhook unless it has deliveries left. */
export async function removeDeleted(sql: Sql, orgId: string, id: string): Promise<void> {
  await sql.query(
    `delete from webhooks w
     where org_id = $1 and id = $2 and deleted_at is not null
       and not exists (select from webhook_deliveries d where d.org_id = $1 and d.webhook_id = $2)`,
    [orgId, id],
  );
}

export async function setPosition(tx: Sql, orgId: string, id: string, position: number): Promise<void> {
  await tx.query('update webhooks set position = $3 where org_id = $1 and id = $2', [orgId, id, position]);
}

/** Closes the circuit, unless the attempt `begun` is from before the current delay. `begun` null: closes it always. */
export async function closeCircuit(
  sql: Sql,
  orgId: string,
  id: string,
  begun: Instant | null,
): Promise<void> {
  await sql.query(
    `update webhooks set failures = 0, failing_since = null, resume_at = null
     where org_id = $1 and id = $2 and (failures > 0 or resume_at is not null)
       and ($3::timestamptz is null or resume_at is null or resume_at <= $3)`,
    [orgId, id, begun],
  );
}

/**
 * Returns the number of failures and the time of the first. Undefined if the failure does not count: the attempt is
 * from before the current delay, it is a retry while the circuit is closed, or the webhook is not active.
 */
export async function countFailure(
  tx: Sql,
  orgId: string,
  id: string,
  { at, begun, isFirst, openAfter }: { at: Instant; begun: Instant; isFirst: boolean; openAfter: number },
): Promise<{ failures: number; failing_since: Instant } | undefined> {
  const { rows } = await tx.query<{ failures: number; failing_since: Instant }>(
    `update webhooks set failures = failures + 1, failing_since = coalesce(failing_since, $3)
     where org_id = $1 and id = $2 and status = 'active'
       and (resume_at is null or resume_at <= $4) and ($5 or failures >= $6)
     returning failures, failing_since`,
    [orgId, id, at, begun, isFirst, openAfter],
  );
  return rows[0];
}

/** Nothing is sent until `at`, or until a later time that was set already. */
export async function setResume(tx: Sql, orgId: string, id: string, at: Instant): Promise<void> {
  await tx.query(
    `update webhooks set resume_at = greatest(resume_at, $3::timestamptz)
     where org_id = $1 and id = $2 and status = 'active'`,
    [orgId, id, at],
  );
}

export async function disableWebhook(
  tx: Sql,
  orgId: string,
  id: string,
  reason: NonNullable<WebhookRow['disabled_reason']>,
  at: Instant,
): Promise<Pick<WebhookRow, 'url' | 'failures' | 'failing_since'> | undefined> {
  const { rows } = await tx.query<Pick<WebhookRow, 'url' | 'failures' | 'failing_since'>>(
    `update webhooks set status = 'disabled', disabled_reason = $3, resume_at = null, updated_at = $4
     where org_id = $1 and id = $2 and status = 'active'
     returning url, failures, failing_since`,
    [orgId, id, reason, at],
  );
  return rows[0];
}

/** Locks webhooks of all organizations that have a secret sealed under another key. */
export async function lockSealedElsewhere(tx: Sql, keyId: string, limit: number): Promise<WebhookRow[]> {
  const { rows } = await tx.query<RawRow>(
    `select ${COLUMNS} from webhooks where key_id <> $1 or $1 <> any (old_key_ids) limit $2 for update`,
    [keyId, limit],
  );
  return rows.map(toRow);
}

/** Deletes expired replaced secrets of all organizations. */
export async function deleteExpiredSecrets(sql: Sql, at: Instant): Promise<void> {
  await sql.query(
    `update webhooks set old_key_ids = '{}', old_sealed = '{}', old_until = null where old_until <= $1`,
    [at],
  );
}

/** Erases all secrets and disables their webhooks, which cannot sign until they get new secrets. */
export async function clearSecrets(tx: Sql, at: Instant): Promise<WebhookRow[]> {
  const { rows } = await tx.query<RawRow>(
    `update webhooks
     set key_id = null, sealed = null, old_key_ids = '{}', old_sealed = '{}', old_until = null,
       status = 'disabled', disabled_reason = 'secret_lost', updated_at = $1
     where key_id is not null
     returning ${COLUMNS}`,
    [at],
  );
  return rows.map(toRow);
}
