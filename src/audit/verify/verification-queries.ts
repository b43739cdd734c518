import type { Sql } from '../../db/pool.js';

export interface Verification {
  orgId: string;
  entries: number;
  /** Null: the log was in order. */
  fault: string | null;
}

/** Notes the time and the outcome for the operator. They are no evidence: a user of the database can write them too. */
export async function recordVerifications(sql: Sql, verifications: readonly Verification[]): Promise<void> {
  await sql.query(
    `insert into event_log_verifications (org_id, verified_at, entries, fault)
     select org_id, clock_timestamp(), entries, fault from unnest($1::uuid[], $2::bigint[], $3::text[]) v (org_id, entries, fault)
     on conflict (org_id) do update
       set verified_at = excluded.verified_at, entries = excluded.entries, fault = excluded.fault`,
    [
      verifications.map(({ orgId }) => orgId),
      verifications.map(({ entries }) => entries),
      verifications.map(({ fault }) => fault),
    ],
  );
}

export interface VerificationState extends Record<string, unknown> {
  /** Age of the oldest of the last verifications; null: there is none. */
  oldest_secs: number | null;
  /** Organizations with a log that was never verified. */
  never: number;
  /** Organizations whose last verification found a fault. */
  faults: number;
}

export async function readVerifications(sql: Sql): Promise<VerificationState> {
  const { rows } = await sql.query<VerificationState>(
    `select extract(epoch from clock_timestamp() - min(v.verified_at))::float8 as oldest_secs,
       count(*) filter (where v.org_id is null) as never, count(*) filter (where v.fault is not null) as faults
     from event_chains c left join event_log_verifications v using (org_id)`,
  );
  return rows[0]!;
}
