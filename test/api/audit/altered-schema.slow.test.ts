import { execFileSync } from 'node:child_process';
import { chownSync, existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { compareCatalogues, readCatalogue, wantedCatalogue } from '../../../src/db/catalogue.js';
import { migrate } from '../../../src/db/migrate.js';
import { connectAlone } from '../../../src/db/pool.js';
import { run, runJson, urlOf } from '../../support/cli.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let session: Awaited<ReturnType<typeof connectAlone>>;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  session = await connectAlone(service.database);
});
afterAll(async () => {
  await session?.end();
  await service?.close();
});

/** The differences after these statements, which are undone. */
async function differencesAfter(statements: string) {
  await session.query('begin');
  try {
    await session.query(statements);
    return compareCatalogues(wantedCatalogue(), await readCatalogue(session));
  } finally {
    await session.query('rollback');
  }
}

const DROPPING =
  'create function public.lose() returns trigger language plpgsql as $$ begin return null; end $$;';
const firstPartition = `(select inhrelid::regclass from pg_inherits where inhparent = 'public.events'::regclass limit 1)`;
const onPartition = (statement: string) =>
  `do $do$ begin execute format('${statement}', ${firstPartition}); end $do$`;

describe('the schema of the database', () => {
  test('is as the migrations made it', async () => {
    expect(await differencesAfter('select')).toEqual([]);
  });

  test.each([
    ['an added policy', 'create policy hide on public.events using (false)', 'policy hide of'],
    [
      'a restrictive policy',
      'create policy hide on public.event_log as restrictive using (false)',
      'policy hide of',
    ],
    [
      'a changed policy',
      'alter policy own_organization on public.events using (true)',
      'policy own_organization of',
    ],
    ['a policy of a partition', onPartition('create policy hide on %s using (false)'), 'policy hide of'],
    [
      'missing row-level security',
      'alter table public.events disable row level security',
      'partitioned table events',
    ],
    ['forced row-level security', 'alter table public.event_log force row level security', 'table event_log'],
    [
      'an added trigger',
      `${DROPPING} create trigger lose before insert on public.unsealed_events for each row execute function public.lose()`,
      'trigger lose of',
    ],
    [
      'a trigger of a partition',
      `${DROPPING} ${onPartition('create trigger lose before insert on %s for each row execute function public.lose()')}`,
      'trigger lose of',
    ],
    [
      'a disabled trigger',
      'alter table public.runs disable trigger count_new_runs',
      'trigger count_new_runs of',
    ],
    [
      'disabled triggers of foreign keys',
      'alter table public.runs disable trigger all',
      'trigger RI_ConstraintTrigger',
    ],
    [
      'a replaced function',
      'create or replace function public.count_new_runs() returns trigger language plpgsql as $$ begin return null; end $$',
      'function public.count_new_runs()',
    ],
    ['an added function', DROPPING, 'function public.lose()'],
    [
      'a missing constraint',
      'alter table public.runs drop constraint runs_check',
      'constraint runs_check of',
    ],
    [
      'an added constraint',
      'alter table public.runs add constraint none check (vcpus < 0) not valid',
      'constraint none of',
    ],
    ['a missing unique index', 'drop index public.runs_under_way', 'index runs_under_way'],
    ['a rule', 'create rule lose as on insert to public.unsealed_events do instead nothing', 'rule lose of'],
    [
      'a missing grant',
      'revoke insert on public.events from sandkeep_requests',
      'grants of partitioned table events to sandkeep_requests',
    ],
    ['an added grant', 'grant delete on public.event_log to public', 'grants of table event_log to public'],
    [
      'a grant of a column',
      'grant update (name) on public.orgs to public',
      'grants of column name of table orgs to public',
    ],
    [
      'a default privilege',
      'alter default privileges in schema public grant insert on tables to public',
      'default privileges of tables to public',
    ],
    [
      'a view in place of a table',
      'alter table public.webhooks rename to hidden; create view public.webhooks as select * from public.hidden where false',
      'view webhooks',
    ],
    [
      'a child of a table',
      'create schema other; create table other.more () inherits (public.orgs)',
      'child other.more of',
    ],
    [
      'a changed column',
      'alter table public.orgs alter column command_lines set default true',
      'column command_lines of table orgs',
    ],
    [
      'a table of another owner',
      'create role somebody; alter table public.api_keys owner to somebody',
      'table api_keys',
    ],
    [
      'an operator',
      'create operator public.=== (leftarg = uuid, rightarg = uuid, function = uuid_eq)',
      'operator public.===(uuid,uuid)',
    ],
    [
      'an event trigger',
      'create function public.watch() returns event_trigger language plpgsql as $$ begin end $$; create event trigger watch on ddl_command_end execute function public.watch()',
      'event trigger watch',
    ],
    [
      'a missing trigger of a partition',
      onPartition('drop trigger never_emptied on %s'),
      'trigger never_emptied of partition events_',
    ],
    [
      'a partition in another schema, and its trigger',
      `create schema other; create function other.lose() returns trigger language plpgsql as $$ begin return null; end $$;
       ${onPartition('create trigger lose before insert on %1$s for each row execute function other.lose(); alter table %1$s set schema other')}`,
      'trigger lose of partition of public.events',
    ],
    [
      'an index that finds too little',
      `create schema other; create function other.less(uuid, uuid) returns int immutable language sql as 'select -1';
       create operator class other.wrong for type uuid using btree as operator 3 = (uuid, uuid), function 1 other.less(uuid, uuid);
       create index finds_none on public.event_log (org_id other.wrong)`,
      'index finds_none',
    ],
    [
      'a function that hides one of PostgreSQL',
      `create function pg_catalog.concat_ws(text, text, text) returns text language sql as 'select null'`,
      'function concat_ws(text,text,text)',
    ],
    [
      'a function that pretends to be of an extension',
      `${DROPPING} alter extension plpgsql add function public.lose()`,
      'function public.lose()',
    ],
    ['a role without row-level security', 'alter role sandkeep_requests bypassrls', 'role sandkeep_requests'],
    [
      'sessions without triggers',
      'set local session_replication_role = replica',
      'setting session_replication_role of the session',
    ],
  ])('shows %s', async (_, statements, object) => {
    const differences = await differencesAfter(statements);
    expect(differences.map((each) => each.object).join('\n')).toContain(object);
  });

  test('has a partition for each month', async () => {
    const made = `select public.make_event_partition(now() + interval '7 months')`;
    expect(await differencesAfter(made)).toEqual([]);
    expect(await differencesAfter(onPartition('drop table %s'))).toEqual([]);
  });

  test('may have objects of the operator elsewhere, and roles that read', async () => {
    const statements = `create schema mine; create table mine.events (id int); create function mine.lose() returns int language sql as 'select 1';
      create role reporter; grant usage on schema public to reporter; grant select on public.events to reporter;
      create index more on public.sandboxes (created_at)`;
    expect(await differencesAfter(statements)).toEqual([]);
  });
});

test('verification fails, and names each object that was changed', async () => {
  const where = ['--database-url', urlOf(service.database), '--data-dir', service.directory];
  await service.newOrg();
  await session.query(`${DROPPING} create policy hide on public.events as restrictive using (false)`);
  const { code, out } = await run(['events', 'verify', ...where]);
  await session.query('drop policy hide on public.events; drop function public.lose()');
  expect(code).toBe(1);
  expect(out).toMatch(/the database: ALTERED: /);
  expect(out).toContain('policy hide of partitioned table events was added: restrictive');
  expect(out).toContain('function public.lose() was added');
  await runJson(['events', 'verify', ...where]);
});

test('no schema shadows the tables of the service', async () => {
  // The default path begins with the schema of the user.
  await session.query('create schema authorization current_user');
  const { rows: users } = await session.query<{ name: string }>('select quote_ident(current_user) as name');
  const schema = users[0]!.name;
  await session.query(`create view ${schema}.orgs as select * from public.orgs where false`);
  const { rows } = await service.ctx.pool.query("select 'orgs'::regclass = 'public.orgs'::regclass as same");
  await session.query(`drop schema ${schema} cascade`);
  expect(rows).toEqual([{ same: true }]);
});

const OLDER = '/usr/lib/postgresql/15/bin';

describe.skipIf(!existsSync(OLDER))('PostgreSQL 15', () => {
  let folder: string;
  const nobody = { uid: 65_534, gid: 65_534 };
  const asUser = process.getuid?.() === 0 ? nobody : {};
  const control = (...args: string[]) =>
    execFileSync(join(OLDER, 'pg_ctl'), ['-D', join(folder, 'data'), '-w', ...args], {
      ...asUser,
      stdio: 'ignore',
    });
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'sandkeep-pg15-'));
    if (process.getuid?.() === 0) chownSync(folder, nobody.uid, nobody.gid);
    const init = [
      '-D',
      join(folder, 'data'),
      '-U',
      'sandkeep',
      '-A',
      'trust',
      '--no-sync',
      '-E',
      'UTF8',
      '--no-locale',
    ];
    execFileSync(join(OLDER, 'initdb'), init, { ...asUser, stdio: 'ignore' });
    control('start', '-o', `-k ${folder} -c listen_addresses= -c fsync=off`, '-l', join(folder, 'log'));
  });
  afterAll(() => {
    control('stop', '-m', 'immediate');
    rmSync(folder, { recursive: true, force: true });
  });

  test('has the same catalogue', async () => {
    const url = `postgres://sandkeep@/postgres?host=${encodeURIComponent(folder)}`;
    await migrate({ url });
    const client = await connectAlone({ url });
    await client.query('begin');
    const found = await readCatalogue(client);
    await client.end();
    expect(compareCatalogues(wantedCatalogue(), found)).toEqual([]);
  });
});
