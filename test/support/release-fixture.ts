import { chmodSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Pool } from '../../src/db/pool.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { until, untilStatus } from './polling.js';
import { makeFixture, type Fixture } from './operation-requests.js';
import { smallRequest } from './sandbox-requests.js';
import type { TestService } from './service.js';

const FOLDER = join(PACKAGE_ROOT, 'test', 'fixtures', 'releases');

/** The data of a release: `rows.sql` has rows of every table, and `data` the key files and the record of the engine. */
export interface ReleaseFixture {
  /** The number of its migrations. */
  migrations: number;
  key: string;
  org: { id: string; name: string; slug: string };
  keyId: string;
  resources: Omit<Fixture, 'client'>;
  /** Answers of the release, by path. */
  answers: Record<string, unknown>;
}

export function releases(): string[] {
  return readdirSync(FOLDER).toSorted();
}

export function readRelease(version: string): ReleaseFixture {
  return JSON.parse(readFileSync(join(FOLDER, version, 'release.json'), 'utf8')) as ReleaseFixture;
}

export function rowsOf(version: string): string {
  return readFileSync(join(FOLDER, version, 'rows.sql'), 'utf8');
}

export function copyDataDirectory(version: string, to: string): void {
  cpSync(join(FOLDER, version, 'data'), to, { recursive: true });
  // git keeps no such modes, and the service refuses key files that others can read.
  for (const file of ['event-keys', 'secret-keys']) chmodSync(join(to, file), 0o600);
}

/** Rows that only time, an engine or an operator makes. $1: the organization. */
const BY_HAND: Record<string, string> = {
  api_key_replaced_secrets: `insert into api_key_replaced_secrets
    select org_id, id, 'replaced0000', sha256('replaced'), '2030-01-01Z' from api_keys where org_id = $1 limit 1`,
  budget_notices: `insert into budget_notices select org_id, id, '2026-11-01', 50 from budgets where org_id = $1 limit 1`,
  console_sessions: `insert into console_sessions
    select org_id, sha256('session'), gen_random_uuid(), id, 'prefix000000', now(), '2030-01-01Z' from api_keys where org_id = $1 limit 1`,
  // A false signature, so it is another organization's, whose log nobody verifies.
  event_drops: `with org as (
      insert into orgs select (jsonb_populate_record(o, jsonb_build_object('id', gen_random_uuid(), 'slug', 'other'))).*
      from orgs o where id = $1 returning id)
    insert into event_drops select id, 1, sha256('1'), now(), '2025-01-01Z', 0, sha256('0'), 'key', 'signature' from org`,
  idempotency_keys: `insert into idempotency_keys values
    ($1, 'key', sha256('request'), '{"status":200,"body":"{}"}', null, true, now())`,
  image_access: `insert into image_access values ($1, 'docker.io/library/busybox:1.36', 'sha256:' || repeat('a', 64), now())`,
  org_members: `insert into org_members values
    ($1, gen_random_uuid(), gen_random_uuid(), 'a@example.com', 'owner', 'A', now())`,
  quotas: `insert into quotas (org_id, max_sandboxes, included_vcpu_hours, updated_at) values ($1, 1000, 100, now())`,
  sandbox_sessions: `insert into sandbox_sessions
    select org_id, gen_random_uuid(), id, '{"kind":"system","code":"operator","label":"test"}',
      '{"kind":"exec"}', now(), now() from sandboxes where org_id = $1 limit 1`,
  terminal_tickets: `insert into terminal_tickets
    select org_id, sha256('ticket'), id, gen_random_uuid(), 'prefix', 'key', 'sealed', '2030-01-01Z', null
    from sandboxes where org_id = $1 limit 1`,
};

/** The service has the simulated runtime, and nothing else uses its database. */
export async function writeRelease(version: string, service: TestService): Promise<void> {
  const { pool } = service.ctx;
  const { client, ...resources } = await makeFixture(service);
  const { org, key, keyId } = client;
  const { id } = resources.sandbox;
  await client.post(`/v1/sandboxes/${id}/stop`, {});
  await untilStatus(client, id, 'stopped');
  await until(
    async () => (await pool.query('select from unsealed_events limit 1')).rowCount,
    (count) => count === 0,
  );
  await service.stopWorker();
  // Its events are not sealed yet.
  await client.post('/v1/sandboxes', smallRequest('created'));
  for (const table of await tablesOf(pool)) {
    const isEmpty = async () => (await pool.query(`select from ${table} limit 1`)).rowCount === 0;
    if (BY_HAND[table] !== undefined && (await isEmpty())) await pool.query(BY_HAND[table], [org.id]);
    if (await isEmpty())
      throw new Error(`the table ${table} has no row: add one to test/support/release-fixture.ts`);
  }
  const answers: Record<string, unknown> = {};
  const day = new Date();
  const window = `since=${day.toISOString().slice(0, 10)}&until=${new Date(+day + 86_400_000).toISOString().slice(0, 10)}`;
  const { sandbox, preview, volume, credential, budget, webhook, event } = resources;
  for (const path of [
    `sandboxes/${sandbox.id}`,
    `volumes/${volume.id}`,
    `webhooks/${webhook.id}`,
    `events/${event.id}`,
    'members',
    'me/org',
    `billing/usage/sandbox?${window}`,
  ]) {
    const [bare, query] = path.split('?');
    answers[`/v1/${path}`] = (await client.request('GET', `/v1/${bare}`, query ? { query } : {})).body;
  }
  const { rows } = await pool.query<{ count: number }>(
    'select count(*)::int as count from schema_migrations',
  );
  const { id: sandboxId, name } = sandbox;
  const release: ReleaseFixture = {
    migrations: rows[0]!.count,
    key,
    org,
    keyId,
    answers,
    resources: {
      sandbox: { id: sandboxId, name },
      ...(preview ? { preview: { id: preview.id } } : {}),
      volume: { id: volume.id },
      event: { id: event.id },
      key: resources.key,
      ...(credential ? { credential: { id: credential.id } } : {}),
      ...(budget ? { budget: { id: budget.id } } : {}),
      webhook,
    },
  };
  const folder = join(FOLDER, version);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'release.json'), `${JSON.stringify(release, null, 2)}\n`);
  writeFileSync(join(folder, 'rows.sql'), await dumpRows(pool));
  const engine = join(folder, 'data', 'simulated');
  mkdirSync(engine, { recursive: true });
  for (const file of readdirSync(service.directory)) {
    const to = /^(engine-id|simulated\.)/.test(file) ? engine : join(folder, 'data');
    if (/^(event-|secret-|engine-id|simulated\.)/.test(file))
      cpSync(join(service.directory, file), join(to, file));
  }
}

/**
 * Inserts with the text of each value, which keeps JSON as it was written. Triggers and foreign keys are off meanwhile.
 */
async function dumpRows(pool: Pool): Promise<string> {
  const parts = ['set session_replication_role = replica;'];
  const months = await pool.query<{ month: string }>(
    `select substr(relname, 8) as month from pg_class
     where relispartition and relkind = 'r' and relname ~ '^events_\\d{4}_\\d{2}$' order by 1`,
  );
  for (const { month } of months.rows) {
    parts.push(`select make_event_partition('${month.replace('_', '-')}-15Z');`);
  }
  for (const table of await tablesOf(pool)) {
    const columns = await pool.query<{ name: string }>(
      `select quote_ident(attname) as name from pg_attribute
       where attrelid = $1::regclass and attnum > 0 and not attisdropped and attgenerated = '' order by attnum`,
      [table],
    );
    const names = columns.rows.map(({ name }) => name);
    const values = names.map((name) => `quote_nullable(${name}::text)`).join(" || ', ' || ");
    const { rows } = await pool.query<{ line: string }>(`select ${values} as line from ${table} order by 1`);
    parts.push(`delete from ${table};`);
    for (const { line } of rows) {
      parts.push(`insert into ${table} (${names.join(', ')}) overriding system value values (${line});`);
    }
  }
  const sequences = await pool.query<{ name: string; last: string | null }>(
    `select sequencename as name, last_value::text as last from pg_sequences where schemaname = 'public' order by 1`,
  );
  for (const { name, last } of sequences.rows) {
    if (last !== null) parts.push(`select setval('${name}', ${last});`);
  }
  return `${parts.join('\n')}\n`;
}

async function tablesOf(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(
    `select relname as name from pg_class
     where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
       and relname <> 'schema_migrations'
     order by 1`,
  );
  return rows.map(({ name }) => name);
}
