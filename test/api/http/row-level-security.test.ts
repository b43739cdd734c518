import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { migrate } from '../../../src/db/migrate.js';
import { openPool, type Address } from '../../../src/db/pool.js';
import { canServe, REQUEST_ROLE } from '../../../src/db/request-role.js';
import { openRequests, type Requests } from '../../../src/db/request-connections.js';
import { inTransaction } from '../../../src/db/transaction.js';
import { makeFixture, type Fixture } from '../../support/operation-requests.js';
import { snapshot } from '../../support/org-snapshot.js';
import type { Client } from '../../support/client.js';
import { withDatabase } from '../../support/database.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let requests: Requests;
let victim: Fixture;
let intruder: Client;
let tables: string[];

beforeAll(async () => {
  service = await startTestService();
  ({ requests } = service.ctx);
  victim = await makeFixture(service);
  intruder = await service.newOrg();
  const { rows } = await service.ctx.pool.query<{ name: string }>(
    `select relname as name from pg_class
     where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
       and (relname = 'orgs' or exists (select from pg_attribute where attrelid = pg_class.oid and attname = 'org_id'))
     order by 1`,
  );
  tables = rows.map(({ name }) => name);
});
afterAll(() => service.close());

const idOf = (table: string) => (table === 'orgs' ? 'id' : 'org_id');

test('every table of organizations has a policy', async () => {
  const { rows } = await service.ctx.pool.query<{ tablename: string }>(
    `select tablename from pg_policies join pg_class on relname = tablename and relrowsecurity
     where schemaname = 'public' and roles = '{public}' and cmd = 'ALL' order by 1`,
  );
  expect(rows.map(({ tablename }) => tablename)).toEqual(tables);
});

test("a statement without the organization returns only rows of the caller's organization", async () => {
  let seen = 0;
  for (const table of tables) {
    const ofAll = `select distinct ${idOf(table)} as id from ${table}`;
    const readAll = async () => {
      const { rows } = await service.ctx.pool.query<{ id: string }>(ofAll);
      return rows.map(({ id }) => id);
    };
    const all = await readAll();
    for (const { org } of [victim.client, intruder]) {
      const { rows } = await requests.of(org.id).pool.query<{ id: string }>(ofAll);
      // The sealer may write rows meanwhile.
      const [before, after] = [all, await readAll()].map((ids) => ids.filter((id) => id === org.id));
      const seenByOrg = rows.map(({ id }) => id);
      expect([table, seenByOrg]).toEqual([table, seenByOrg.length === before!.length ? before : after]);
    }
    if (all.includes(victim.client.org.id)) seen += 1;
  }
  // Nearly every table has rows that the statement did not return.
  expect(seen).toBeGreaterThan(tables.length / 2);
});

test('a write that omits the organization or names another one changes none of its rows', async () => {
  const before = await snapshot(service, victim.client.org.id);
  const { pool } = requests.of(intruder.org.id);
  for (const table of ['sandboxes', 'volumes', 'webhooks', 'api_keys']) {
    const column = table === 'webhooks' ? 'url' : 'name';
    await inTransaction(pool, async (tx) => {
      const updated = await tx.query(`update ${table} set ${column} = ${column} where org_id = $1`, [
        victim.client.org.id,
      ]);
      expect(updated.rowCount).toBe(0);
      const named = await tx.query(`delete from ${table} where org_id = $1`, [victim.client.org.id]);
      expect(named.rowCount).toBe(0);
    });
  }
  await expect(
    pool.query('insert into quotas (org_id, updated_at) values ($1, now())', [victim.client.org.id]),
  ).rejects.toThrow('row-level security');
  expect(await snapshot(service, victim.client.org.id)).toEqual(before);
});

test('requests cannot read the partitions of the audit events directly', async () => {
  const { rows } = await service.ctx.pool.query<{ name: string }>(
    "select inhrelid::regclass::text as name from pg_inherits where inhparent = 'events'::regclass limit 1",
  );
  await expect(requests.of(intruder.org.id).pool.query(`select from ${rows[0]!.name}`)).rejects.toThrow(
    'permission denied',
  );
});

test('requests cannot reach tables that belong to no organization', async () => {
  const { rows } = await service.ctx.pool.query<{ name: string }>(
    `select relname as name from pg_class
     where relnamespace = 'public'::regnamespace and relkind in ('r', 'p', 'v', 'm') and not relispartition
       and not (relname = any ($1)) order by 1`,
    [tables],
  );
  const others = rows.map(({ name }) => name);
  expect(others).toEqual([
    'device_sign_ins',
    'event_keys',
    'instance',
    'logout_tokens',
    'passkey_challenges',
    'people',
    'schema_migrations',
    'workers',
  ]);
  for (const name of others) {
    for (const statement of [`select from ${name}`, `delete from ${name}`, `truncate ${name}`]) {
      await expect(requests.of(intruder.org.id).pool.query(statement)).rejects.toThrow('permission denied');
    }
  }
});

test('a connection serves each organization alone, also after an error', async () => {
  const names = async (id: string) =>
    (await requests.of(id).pool.query<{ id: string }>('select id from orgs')).rows.map((row) => row.id);
  const ids = [victim.client.org.id, intruder.org.id];
  const asked = Array.from({ length: 200 }, (_, index) => ids[index % 2]!);
  expect(await Promise.all(asked.map(names))).toEqual(asked.map((id) => [id]));
  for (const id of asked.slice(0, 20)) {
    const failing = inTransaction(requests.of(id).pool, async (tx) => {
      expect((await tx.query<{ id: string }>('select id from orgs')).rows).toEqual([{ id }]);
      await tx.query('select 1 / 0');
    });
    await expect(failing).rejects.toThrow('division by zero');
    expect(await names(id)).toEqual([id]);
  }
});

test('a database user that cannot create roles works without a role, and with an assigned one', async () => {
  const name = `plain_${process.pid}`;
  const server = inject('server');
  const admin = openPool(withDatabase(server, 'template1'), () => undefined);
  await admin.query(`create role ${name} login`);
  await admin.query(`create database ${name} template template0 owner ${name}`);
  const address = asUser(withDatabase(server, name), name);
  const pool = openPool(address, () => undefined);
  try {
    await migrate(address);
    expect(await canServe(pool)).toBe(false);
    await admin.query(`grant ${REQUEST_ROLE} to ${name}`);
    await migrate(address);
    expect(await canServe(pool)).toBe(true);
    const alone = openRequests(address, true, () => undefined);
    const { rows } = await alone.of(victim.client.org.id).pool.query('select current_user as name');
    expect(rows).toEqual([{ name: REQUEST_ROLE }]);
    await alone.close();
  } finally {
    await pool.end();
    await admin.query(`drop database ${name} with (force)`);
    await admin.query(`drop role ${name}`);
    await admin.end();
  }
});

test('a database user that does not own the tables gets an error, not an empty installation', async () => {
  const name = `guest_${process.pid}`;
  const { pool } = service.ctx;
  await pool.query(`create role ${name} login`);
  await pool.query(
    `grant select, insert, update, delete on all tables in schema public to ${name}; grant usage, create on schema public to ${name}`,
  );
  await expect(migrate(asUser(service.database, name))).rejects.toThrow('must be the owner of the tables');
  await pool.query(`drop owned by ${name}; drop role ${name}`);
});

function asUser(address: Address, user: string): Address {
  if (!('url' in address)) throw new Error('the address of a test database is a URL');
  return { url: address.url.replace(/\/\/[^@/]*@/, `//${user}@`) };
}
