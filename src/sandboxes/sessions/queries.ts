import type { EventActor } from '../../audit/events/schema.js';
import type { Sql } from '../../db/pool.js';
import type { Instant } from '../../lib/instant.js';

/** The fields that both audit events of a session have. */
export interface SessionDetails {
  session_id: string;
  sandbox_id: string;
  name: string;
  kind: 'exec' | 'terminal' | 'files' | 'tcp';
  user: string | null;
  program: string | null;
  argument_count: number;
  /** Only if the organization records command lines. */
  command?: string[];
  command_cut?: boolean;
}

export interface SessionRow {
  org_id: string;
  id: string;
  actor: EventActor;
  details: SessionDetails;
  opened_at: Instant;
  seen_at: Instant;
}

export async function recordsCommandLines(sql: Sql, orgId: string): Promise<boolean> {
  const { rows } = await sql.query<{ command_lines: boolean }>(
    'select command_lines from orgs where id = $1',
    [orgId],
  );
  return rows[0]?.command_lines === true;
}

export async function insertSession(
  sql: Sql,
  { org_id, id, actor, details, opened_at }: Omit<SessionRow, 'seen_at'>,
): Promise<void> {
  await sql.query(
    `insert into sandbox_sessions (org_id, id, sandbox_id, actor, details, opened_at, seen_at)
     values ($1, $2, $3, $4, $5, $6, clock_timestamp())`,
    [org_id, id, details.sandbox_id, JSON.stringify(actor), JSON.stringify(details), opened_at],
  );
}

/** False when another process has ended it. */
export async function deleteSession(sql: Sql, orgId: string, id: string): Promise<boolean> {
  const { rowCount } = await sql.query('delete from sandbox_sessions where org_id = $1 and id = $2', [
    orgId,
    id,
  ]);
  return rowCount === 1;
}

/** Returns the sessions that still have a row, and whether a caller has asked for their end. */
export async function renewSessions(
  sql: Sql,
  sessions: readonly { orgId: string; id: string }[],
): Promise<Map<string, { isToEnd: boolean }>> {
  const { rows } = await sql.query<{ id: string; is_to_end: boolean }>(
    `update sandbox_sessions s set seen_at = clock_timestamp()
     from unnest($1::uuid[], $2::uuid[]) as k (org_id, id)
     where s.org_id = k.org_id and s.id = k.id
     returning s.id, s.end_requested_at is not null as is_to_end`,
    [sessions.map(({ orgId }) => orgId), sessions.map(({ id }) => id)],
  );
  return new Map(rows.map(({ id, is_to_end: isToEnd }) => [id, { isToEnd }]));
}

export interface ListedSession extends Omit<SessionRow, 'seen_at'> {
  end_requested_at: Instant | null;
}

/** Ids of version 7 are in the order in which the sessions were opened. */
export async function getSessions(
  sql: Sql,
  orgId: string,
  sandboxId: string,
  { after = null, limit }: { after?: string | null | undefined; limit: number },
): Promise<ListedSession[]> {
  const { rows } = await sql.query<ListedSession & Record<string, unknown>>(
    `select org_id, id, actor, details, opened_at, end_requested_at from sandbox_sessions
     where org_id = $1 and sandbox_id = $2 and ($3::uuid is null or id > $3) order by id limit $4`,
    [orgId, sandboxId, after, limit],
  );
  return rows;
}

/** Undefined: there is no such session in the sandbox. `isFirst`: nobody has asked for its end before. */
export async function requestEnd(
  tx: Sql,
  orgId: string,
  sandboxId: string,
  id: string,
  at: Instant,
): Promise<{ details: SessionDetails; isFirst: boolean } | undefined> {
  const { rows } = await tx.query<{ details: SessionDetails; is_first: boolean }>(
    `select details, end_requested_at is null as is_first from sandbox_sessions
     where org_id = $1 and sandbox_id = $2 and id = $3 for update`,
    [orgId, sandboxId, id],
  );
  const [found] = rows;
  if (!found) return undefined;
  if (found.is_first) {
    await tx.query('update sandbox_sessions set end_requested_at = $3 where org_id = $1 and id = $2', [
      orgId,
      id,
      at,
    ]);
  }
  return { details: found.details, isFirst: found.is_first };
}

export async function readClockMs(sql: Sql): Promise<number> {
  const { rows } = await sql.query<{ at: number }>(
    'select extract(epoch from clock_timestamp())::float8 * 1000 as at',
  );
  return rows[0]!.at;
}

/** Deletes sessions that no process has renewed for so long, and returns them. */
export async function takeLostSessions(sql: Sql, forMs: number, limit: number): Promise<SessionRow[]> {
  const { rows } = await sql.query<SessionRow & Record<string, unknown>>(
    `delete from sandbox_sessions where (org_id, id) in (
       select org_id, id from sandbox_sessions where seen_at < clock_timestamp() - $1 * interval '1 millisecond'
       order by seen_at limit $2 for update skip locked)
     returning org_id, id, actor, details, opened_at, seen_at`,
    [forMs, limit],
  );
  return rows;
}

/** Whether a command or a terminal is open in the sandbox, from whichever process. */
export async function hasOpenCommand(sql: Sql, orgId: string, sandboxId: string): Promise<boolean> {
  const { rowCount } = await sql.query(
    `select from sandbox_sessions
     where org_id = $1 and sandbox_id = $2 and details ->> 'kind' in ('exec', 'terminal') limit 1`,
    [orgId, sandboxId],
  );
  return rowCount === 1;
}
