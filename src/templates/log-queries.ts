import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

export type BuildSource = 'build' | 'stdout' | 'stderr';

export interface LogPiece {
  position: number;
  at: Instant;
  source: BuildSource;
  text: string;
}

interface Ref {
  orgId: string;
  templateId: string;
}

export async function insertLog(
  sql: Sql,
  { orgId, templateId }: Ref,
  pieces: readonly LogPiece[],
): Promise<void> {
  await sql.query(
    `insert into template_logs (org_id, template_id, position, at, source, text)
     select $1, $2, * from unnest($3::int[], $4::timestamptz[], $5::text[], $6::text[])`,
    [
      orgId,
      templateId,
      pieces.map(({ position }) => position),
      pieces.map(({ at }) => at),
      pieces.map(({ source }) => source),
      pieces.map(({ text }) => text),
    ],
  );
}

export async function readLog(
  sql: Sql,
  { orgId, templateId }: Ref,
  after: number,
  limit: number,
): Promise<LogPiece[]> {
  const { rows } = await sql.query<LogPiece & Record<string, unknown>>(
    `select position, at, source, text from template_logs
     where org_id = $1 and template_id = $2 and position > $3 order by position limit $4`,
    [orgId, templateId, after, limit],
  );
  return rows;
}
