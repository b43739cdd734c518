import type { Sql } from '../db/pool.js';
import { Conditions } from '../lib/conditions.js';
import type { Instant } from '../lib/instant.js';
import type { AttemptResponse, DeliveryResponse } from './schema.js';

export interface DeliveryRow {
  org_id: string;
  webhook_id: string;
  id: string;
  event_id: string;
  event_type: string;
  seq: number | null;
  status: DeliveryResponse['status'];
  attempts: number;
  /** The number of attempts before the last request for redelivery. */
  tried_before: number;
  results: AttemptResponse[];
  /** Whether the receiver refused this event in the last attempt. */
  refused: boolean;
  due_at: Instant | null;
  expires_at: Instant | null;
  created_at: Instant;
  settled_at: Instant | null;
}

/** A delivery with a running attempt. `claim` is its fencing token. */
export type Claimed = DeliveryRow & { claim: string; expires_at: Instant };

const COLUMNS =
  'org_id, webhook_id, id, event_id, event_type, seq, status, attempts, tried_before, results, refused, due_at, expires_at, created_at, settled_at';
const MAX_RESULTS = 20;

type NewDelivery = Pick<
  DeliveryRow,
  'org_id' | 'webhook_id' | 'id' | 'event_id' | 'event_type' | 'seq' | 'created_at' | 'expires_at'
>;

/** Inserts deliveries of one webhook, due at once. Existing ones stay unchanged. */
export async function insertDeliveries(tx: Sql, deliveries: readonly NewDelivery[]): Promise<void> {
  const [first] = deliveries;
  if (!first) return;
  await tx.query(
    `insert into webhook_deliveries
       (org_id, webhook_id, id, event_id, event_type, seq, status, due_at, created_at, expires_at)
     select $1, $2, d.id, d.event_id, d.event_type, d.seq, 'pending', $3, $3, $4
     from unnest($5::uuid[], $6::uuid[], $7::text[], $8::bigint[]) as d (id, event_id, event_type, seq)
     on conflict (org_id, webhook_id, seq) where seq is not null do nothing`,
    [
      first.org_id,
      first.webhook_id,
      first.created_at,
      first.expires_at,
      deliveries.map(({ id }) => id),
      deliveries.map(({ event_id }) => event_id),
      deliveries.map(({ event_type }) => event_type),
      deliveries.map(({ seq }) => seq),
    ],
  );
}

/** Counts the pending deliveries, except those that the receiver refused. */
export async function countPending(
  sql: Sql,
  orgId: string,
  webhookId: string,
): Promise<{ pending: number; untried: number }> {
  const { rows } = await sql.query<{ pending: number; untried: number }>(
    `select count(*) as pending, count(*) filter (where attempts = 0) as untried
     from webhook_deliveries
     where org_id = $1 and webhook_id = $2 and status = 'pending' and not refused`,
    [orgId, webhookId],
  );
  return rows[0]!;
}

export interface Claim {
  at: Instant;
  /** The claim expires then, and another process may retry. */
  until: Instant;
  claim: string;
  /** The expiry of deliveries that were not tried before. */
  expiresAt: Instant;
}

/**
 * Claims due deliveries in the order of the log, refused ones last, if the webhook is active and its circuit allows it.
 * A test is not claimed unless it is redelivered. `leastTriedFirst`: for probes, so that events which the receiver
 * cannot process do not keep the circuit open.
 */
export async function claimDue(
  sql: Sql,
  orgId: string,
  webhookId: string,
  { at, until, claim, expiresAt }: Claim,
  { limit, leastTriedFirst }: { limit: number; leastTriedFirst: boolean },
): Promise<Claimed[]> {
  const { rows } = await sql.query<Claimed & Record<string, unknown>>(
    `with due as materialized (
       select id from webhook_deliveries
       where org_id = $1 and webhook_id = $2 and status = 'pending' and due_at <= $3
         and (seq is not null or expires_at > $3)
         and exists (select from webhooks where org_id = $1 and id = $2 and status = 'active'
           and (resume_at is null or resume_at <= $3))
       order by refused, ${leastTriedFirst ? 'attempts - tried_before, ' : ''}due_at, seq
       limit $6
       for update skip locked
     )
     update webhook_deliveries d
     set due_at = $4, claim = $5, attempts = attempts + 1,
       expires_at = case when attempts = tried_before then $7 else expires_at end
     from due
     where d.org_id = $1 and d.webhook_id = $2 and d.id = due.id
     returning ${COLUMNS.replaceAll(/\w+/g, 'd.$&')}, claim`,
    [orgId, webhookId, at, until, claim, limit, expiresAt],
  );
  return rows.toSorted((a, b) => (a.seq ?? 0) - (b.seq ?? 0));
}

export async function claimOne(
  sql: Sql,
  orgId: string,
  webhookId: string,
  id: string,
  { until, claim }: Pick<Claim, 'until' | 'claim'>,
): Promise<Claimed> {
  const { rows } = await sql.query<Claimed & Record<string, unknown>>(
    `update webhook_deliveries set due_at = $4, claim = $5, attempts = attempts + 1
     where org_id = $1 and webhook_id = $2 and id = $3
     returning ${COLUMNS}, claim`,
    [orgId, webhookId, id, until, claim],
  );
  return rows[0]!;
}

/** Stores the result of an attempt. Undefined if another process holds the claim. `dueAt`: null if settled. */
export async function finishAttempt(
  sql: Sql,
  { org_id, webhook_id, id, claim }: Claimed,
  result: AttemptResponse,
  next: { status: DeliveryRow['status']; dueAt: Instant | null; settledAt: Instant | null; refused: boolean },
): Promise<DeliveryRow | undefined> {
  const { rows } = await sql.query<DeliveryRow & Record<string, unknown>>(
    `update webhook_deliveries
     set status = $5, due_at = $6, settled_at = $7, refused = $8, claim = null,
       results = case when jsonb_array_length(results) >= $10 then results - 0 else results end || $9::jsonb
     where org_id = $1 and webhook_id = $2 and id = $3 and claim = $4
     returning ${COLUMNS}`,
    [
      org_id,
      webhook_id,
      id,
      claim,
      next.status,
      next.dueAt,
      next.settledAt,
      next.refused,
      JSON.stringify([result]),
      MAX_RESULTS,
    ],
  );
  return rows[0];
}

/** Releases a delivery that was claimed and not tried. */
export async function releaseClaim(sql: Sql, { org_id, webhook_id, id, claim }: Claimed, at: Instant) {
  await sql.query(
    `update webhook_deliveries set due_at = $5, claim = null, attempts = attempts - 1
     where org_id = $1 and webhook_id = $2 and id = $3 and claim = $4`,
    [org_id, webhook_id, id, claim, at],
  );
}

export async function lockDelivery(
  tx: Sql,
  orgId: string,
  webhookId: string,
  id: string,
): Promise<DeliveryRow | undefined> {
  const { rows } = await tx.query<DeliveryRow & Record<string, unknown>>(
    `select ${COLUMNS} from webhook_deliveries
     where org_id = $1 and webhook_id = $2 and id = $3
     for update`,
    [orgId, webhookId, id],
  );
  return rows[0];
}

/** Makes a delivery due at once with all its attempts ahead. A running attempt counts as the first. */
export async function makeDue(
  tx: Sql,
  { org_id, webhook_id, id }: DeliveryRow,
  { at, expiresAt }: { at: Instant; expiresAt: Instant },
): Promise<DeliveryRow> {
  const { rows } = await tx.query<DeliveryRow & Record<string, unknown>>(
    `update webhook_deliveries
     set status = 'pending', due_at = case when claim is null then $4 else due_at end, settled_at = null,
       refused = false, expires_at = $5, tried_before = attempts - case when claim is null then 0 else 1 end
     where org_id = $1 and webhook_id = $2 and id = $3
     returning ${COLUMNS}`,
    [org_id, webhook_id, id, at, expiresAt],
  );
  return rows[0]!;
}

/** Newest first, after the key `after` (created_at, id). */
export async function listDeliveries(
  sql: Sql,
  orgId: string,
  webhookId: string,
  status: DeliveryRow['status'] | undefined,
  after: readonly [Instant, string] | undefined,
  limit: number,
): Promise<DeliveryRow[]> {
  const conditions = new Conditions()
    .add((p) => `org_id = ${p(orgId)}`)
    .add((p) => `webhook_id = ${p(webhookId)}`);
  if (status) conditions.add((p) => `status = ${p(status)}`);
  if (after) conditions.add((p) => `(created_at, id) < (${p(after[0])}, ${p(after[1])})`);
  const { rows } = await sql.query<DeliveryRow & Record<string, unknown>>(
    `select ${COLUMNS} from webhook_deliveries
     where ${conditions.text}
     order by created_at desc, id desc
     limit ${conditions.parameter(limit)}`,
    conditions.values,
  );
  return rows;
}

/** Fails tests of all organizations whose process was killed. */
export async function failLostTests(sql: Sql, at: Instant): Promise<void> {
  await sql.query(
    `update webhook_deliveries set status = 'failed', due_at = null, claim = null, settled_at = $1
     where status = 'pending' and seq is null and due_at < $1 and expires_at < $1`,
    [at],
  );
}

/** Deletes deliveries of all organizations that were settled before `before`. Returns their number. */
export async function deleteSettled(sql: Sql, before: Instant, limit: number): Promise<number> {
  const { rowCount } = await sql.query(
    `delete from webhook_deliveries
     where ctid = any (array(
       select ctid from webhook_deliveries
       where status <> 'pending' and settled_at < $1
       limit $2
       for update skip locked))`,
    [before, limit],
  );
  return rowCount ?? 0;
}

export async function deleteDeliveries(
  sql: Sql,
  orgId: string,
  webhookId: string,
  limit: number,
): Promise<number> {
  const { rowCount } = await sql.query(
    // By their places, so that no plan looks at any of them twice.
    `delete from webhook_deliveries
     where org_id = $1 and webhook_id = $2 and ctid = any (array(
       select ctid from webhook_deliveries
       where org_id = $1 and webhook_id = $2
       limit $3
       for update skip locked))`,
    [orgId, webhookId, limit],
  );
  return rowCount ?? 0;
}
