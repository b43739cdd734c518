import type { Sql } from '../db/pool.js';
import type { Instant } from '../lib/instant.js';

export interface OrgRow {
  id: string;
  name: string;
  slug: string;
  created_at: Instant;
}

export async function insertOrg(sql: Sql, org: OrgRow): Promise<void> {
  await sql.query('insert into orgs (id, name, slug, created_at, updated_at) values ($1, $2, $3, $4, $4)', [
    org.id,
    org.name,
    org.slug,
    org.created_at,
  ]);
}

export async function getOrg(sql: Sql, id: string): Promise<(OrgRow & { updated_at: Instant }) | undefined> {
  const { rows } = await sql.query<OrgRow & { updated_at: Instant } & Record<string, unknown>>(
    'select id, name, slug, created_at, updated_at from orgs where id = $1',
    [id],
  );
  return rows[0];
}

export async function findOrgBySlug(sql: Sql, slug: string): Promise<OrgRow | undefined> {
  const { rows } = await sql.query<OrgRow & Record<string, unknown>>(
    'select id, name, slug, created_at from orgs where slug = $1',
    [slug],
  );
  return rows[0];
}

export async function listOrgs(sql: Sql): Promise<OrgRow[]> {
  const { rows } = await sql.query<OrgRow & Record<string, unknown>>(
    'select id, name, slug, created_at from orgs order by created_at, id',
  );
  return rows;
}

export async function hasOrgs(sql: Sql): Promise<boolean> {
  const { rows } = await sql.query<{ found: boolean }>('select exists (select from orgs) as found');
  return rows[0]!.found;
}

/** The columns of an organization that an operator turns on and off. */
export type OrgSwitch = 'command_lines' | 'network_record';

/** Returns the value before. */
export async function setSwitch(sql: Sql, id: string, column: OrgSwitch, on: boolean): Promise<boolean> {
  const { rows } = await sql.query<{ before: boolean }>(
    `with old as (select ${column} as before from orgs where id = $1 for update)
     update orgs set ${column} = $2 from old where id = $1 returning before`,
    [id, on],
  );
  return rows[0]!.before;
}

export interface PreviewSettings {
  /** Whether previews may be public. */
  public: boolean;
  /** Whether browsers first see whose page they open. */
  notice: boolean;
}

export async function getPreviewSettings(sql: Sql, id: string): Promise<PreviewSettings> {
  const { rows } = await sql.query<PreviewSettings & Record<string, unknown>>(
    'select public_previews as public, preview_notice as notice from orgs where id = $1',
    [id],
  );
  return rows[0]!;
}

/** Changes the given ones. Returns the values before. */
export async function setPreviewSettings(
  sql: Sql,
  id: string,
  settings: Partial<PreviewSettings>,
): Promise<PreviewSettings> {
  const { rows } = await sql.query<PreviewSettings & Record<string, unknown>>(
    `with old as (select public_previews, preview_notice from orgs where id = $1 for update)
     update orgs set public_previews = coalesce($2, old.public_previews),
       preview_notice = coalesce($3, old.preview_notice)
     from old where id = $1
     returning old.public_previews as public, old.preview_notice as notice`,
    [id, settings.public ?? null, settings.notice ?? null],
  );
  return rows[0]!;
}
