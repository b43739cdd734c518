import { ExplainedError } from '../lib/explained-error.js';
import { sqlState, type Sql } from './pool.js';

/** The role of request sessions. Row-level security does not bind the owner of the tables. */
export const REQUEST_ROLE = 'sandkeep_requests';

export const NAME_ORG = {
  name: 'serve_org',
  text: "select set_config('sandkeep.org_id', $1, false)",
};

export function sessionFor(apart: boolean): string {
  return apart ? `-c role=${REQUEST_ROLE}` : '';
}

const INSUFFICIENT_PRIVILEGE = '42501';
const DUPLICATE_ROLE = new Set<string | undefined>(['42710', '23505']);

export const HOW_TO_MAKE_IT = `as a superuser of the database server: create role ${REQUEST_ROLE} nologin; grant ${REQUEST_ROLE} to <the user of Sandkeep>; then start again`;

/**
 * Creates the role, if the user may, and grants it the tables. Throws ExplainedError when row-level security binds the
 * user too. One process at a time may call it in a database.
 */
export async function prepareRequestRole(sql: Sql): Promise<void> {
  const { rows } = await sql.query<{ bound: boolean }>("select row_security_active('sandboxes') as bound");
  if (rows[0]!.bound) {
    throw new ExplainedError(
      'the user of the database must be the owner of the tables of Sandkeep: as another it would see none of their rows',
    );
  }
  if (!(await canServe(sql)) && !(await makeRole(sql))) return;
  await grantTables(sql);
  await sql.query(`grant execute on function cancel_statement to ${REQUEST_ROLE}`);
}

/** In the transaction of each migration: the triggers of the previous release write to its tables as the role. */
export async function grantMigrated(sql: Sql): Promise<void> {
  if (await canServe(sql)) await grantTables(sql);
}

/**
 * Grants the tables that have an organization. The policy of a partition is on its parent, so partitions get no grant.
 */
async function grantTables(sql: Sql): Promise<void> {
  await sql.query(`
    do $$
    declare
      missing regclass;
    begin
      for missing in
        select oid from pg_class
        where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
          and (relname = 'orgs' or exists (select from pg_attribute where attrelid = pg_class.oid and attname = 'org_id'))
          and not has_table_privilege('${REQUEST_ROLE}', oid, 'insert')
      loop
        execute format('grant select, insert, update, delete on %s to ${REQUEST_ROLE}', missing);
      end loop;
    end
    $$;
    grant usage on all sequences in schema public to ${REQUEST_ROLE}`);
}

export async function canServe(sql: Sql): Promise<boolean> {
  const { rows } = await sql.query<{ able: boolean }>(
    `select pg_has_role(oid, case when current_setting('server_version_num')::int < 160000 then 'member' else 'set' end) as able
     from pg_roles where rolname = $1`,
    [REQUEST_ROLE],
  );
  return rows[0]?.able === true;
}

export async function mayMakeRole(sql: Pick<Sql, 'query'>): Promise<boolean> {
  const { rows } = await sql.query<{ able: boolean }>(
    `select rolsuper or rolcreaterole and not exists (select from pg_roles where rolname = $1) as able
     from pg_roles where rolname = current_user`,
    [REQUEST_ROLE],
  );
  return rows[0]?.able === true;
}

async function makeRole(sql: Sql): Promise<boolean> {
  try {
    await sql.query(`create role ${REQUEST_ROLE} nologin`).catch((error: unknown) => {
      // Another database of the server may create the role at the same time.
      if (!DUPLICATE_ROLE.has(sqlState(error))) throw error;
    });
    await sql.query(`grant ${REQUEST_ROLE} to current_user`);
    return true;
  } catch (error) {
    if (sqlState(error) === INSUFFICIENT_PRIVILEGE) return false;
    throw error;
  }
}
