import { ExplainedError } from '../lib/explained-error.js';
import { sqlState, type Sql } from './pool.js';

/** What the sessions that serve requests become. Not their own user: that one owns the tables, and is bound by no policy. */
export const REQUEST_ROLE = 'sandkeep_requests';

/** Says whom a session serves that is one of the role. */
export const NAME_ORG = {
  name: 'serve_org',
  text: "select set_config('sandkeep.org_id', $1, false)",
};

/** What sessions that serve requests have beside what every session has. `apart`: whether the role can be had. */
export function sessionFor(apart: boolean): string {
  return apart ? `-c role=${REQUEST_ROLE}` : '';
}

const INSUFFICIENT_PRIVILEGE = '42501';
const DUPLICATE_ROLE = new Set<string | undefined>(['42710', '23505']);

/** What the operator can do who has no role for requests. */
export const HOW_TO_MAKE_IT = `as a superuser of the database server: create role ${REQUEST_ROLE} nologin; grant ${REQUEST_ROLE} to <the user of Sandkeep>; then start again`;

/**
 * Makes the role, if this user may, and gives it what it needs of this database. To be called by one at a time in a database.
 * Throws ExplainedError when this user is itself bound by the policies.
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

/**
 * Gives the role, where there is one, what it needs of the tables there are. In the transaction of each migration: from its commit on
 * the triggers of the release before write into its tables, as the role.
 */
export async function grantMigrated(sql: Sql): Promise<void> {
  if (await canServe(sql)) await grantTables(sql);
}

/**
 * Roles are those of the whole server, their rights those in each database. Of a partition it gets none: the policy is with the
 * table it belongs to. Nor of what belongs to no organization: nothing a request does needs that.
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

/** Can sessions of this user become the role? */
export async function canServe(sql: Sql): Promise<boolean> {
  const { rows } = await sql.query<{ able: boolean }>(
    `select pg_has_role(oid, case when current_setting('server_version_num')::int < 160000 then 'member' else 'set' end) as able
     from pg_roles where rolname = $1`,
    [REQUEST_ROLE],
  );
  return rows[0]?.able === true;
}

async function makeRole(sql: Sql): Promise<boolean> {
  try {
    await sql.query(`create role ${REQUEST_ROLE} nologin`).catch((error: unknown) => {
      // For another database of the server, perhaps at this moment.
      if (!DUPLICATE_ROLE.has(sqlState(error))) throw error;
    });
    await sql.query(`grant ${REQUEST_ROLE} to current_user`);
    return true;
  } catch (error) {
    if (sqlState(error) === INSUFFICIENT_PRIVILEGE) return false;
    throw error;
  }
}
