import { cpSync, existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, inject, test } from 'vitest';
import { ActiveEventKeys } from '../../../src/audit/events/active-keys.js';
import { activateKeys } from '../../../src/audit/log/activate-keys.js';
import { sealEvents } from '../../../src/audit/log/seal.js';
import { SeenHeads } from '../../../src/audit/log/seen-heads.js';
import { openEventKeys, rotateEventKey } from '../../../src/audit/log/signing-key.js';
import { BrokenLog } from '../../../src/audit/log/verify-head.js';
import { verifyStore } from '../../../src/audit/verify/verify-store.js';
import { loadConfig } from '../../../src/config/load.js';
import { OPTION_NAMES } from '../../../src/config/options.js';
import { openPool } from '../../../src/db/pool.js';
import { ExplainedError } from '../../../src/lib/explained-error.js';
import { now } from '../../../src/lib/instant.js';
import { startService } from '../../../src/service/start.js';
import { runJson, urlOf } from '../../support/cli.js';
import { cloneTemplate } from '../../support/database.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';

/** This service seals only on request. */
let service: TestService;
let folder: string;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-keys-'));
});
afterAll(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

const never = new AbortController().signal;
const keysFile = () => join(service.directory, 'event-keys');
const wrong = async (orgId: string) => {
  const keys = service.ctx.eventKeys();
  return (await verifyStore(service.ctx.pool, orgId, { keys: keys.known }, { keys })).wrong;
};

/** Another process that has the current keys and never loads new ones. */
function another() {
  const keys = service.ctx.eventKeys();
  const activeKeys = new ActiveEventKeys(() => keys);
  const pool = openPool(service.database, () => undefined, activeKeys.marker);
  const seenHeads = new SeenHeads(join(folder, 'nothing'));
  return { ...service.ctx, pool, activeKeys, seenHeads, eventKeys: () => keys };
}

test('a process without the newest key appends nothing to the log, and reports no event as inserted', async () => {
  const client = await service.newOrg();
  expect(await sealEvents(service.ctx, never)).toEqual([]);
  const behind = another();
  rotateEventKey(keysFile());
  expect(await sealEvents(service.ctx, never)).toEqual([]);
  await client.post('/v1/volumes', { name: 'under-the-new-key' });
  await expect(sealEvents(behind, never)).rejects.toThrow(BrokenLog);
  expect(await sealEvents(service.ctx, never)).toEqual([]);
  expect(await wrong(client.org.id)).toBeNull();
  await behind.pool.end();
});

test('a process that lists an older key first signs nothing, so two processes never sign each log in turns', async () => {
  const client = await service.newOrg();
  expect(await sealEvents(service.ctx, never)).toEqual([]);
  const [before] = readFileSync(keysFile(), 'utf8').split('\n');
  rotateEventKey(keysFile());
  const reversed = {
    ...another(),
    eventKeys: openEventKeys({ keys: `${before}\n${readFileSync(keysFile(), 'utf8')}` }),
  };
  expect(await sealEvents(service.ctx, never)).toEqual([]);
  await client.post('/v1/volumes', { name: 'in-between' });
  const failed = await sealEvents(reversed, never);
  expect(failed).toContainEqual({ orgId: client.org.id, error: expect.any(BrokenLog) });
  expect(await sealEvents(service.ctx, never)).toEqual([]);
  const { body } = await client.get('/v1/events', { event_type: 'event_key_rotated' });
  expect(body.data).toHaveLength(1);
  expect(await wrong(client.org.id)).toBeNull();
  await reversed.pool.end();
});

test('a process signs nothing when the new key appears during its batch', async () => {
  const { pool } = service.ctx;
  const client = await service.newOrg();
  const behind = another();
  // The sealer waits at the start of its batch.
  await pool.query(`
    create function wait_for_test() returns trigger language plpgsql as $$
    begin
      perform pg_advisory_xact_lock(4711);
      return new;
    end $$;
    create trigger wait_for_test before insert on event_chains for each row execute function wait_for_test()`);
  const holder = await pool.connect();
  try {
    await holder.query('select pg_advisory_lock(4711)');
    const sealing = sealEvents(behind, never);
    await until(
      () =>
        pool.query(
          "select from pg_stat_activity where datname = current_database() and wait_event = 'advisory'",
        ),
      ({ rowCount }) => rowCount === 1,
    );
    rotateEventKey(keysFile());
    await activateKeys(service.ctx, service.ctx.eventKeys(), now());
    await client.post('/v1/volumes', { name: 'under-the-new-key' });
    await holder.query('select pg_advisory_unlock(4711)');
    expect(await sealing).toContainEqual({ orgId: client.org.id, error: expect.any(BrokenLog) });
  } finally {
    holder.release(true);
    await pool.query('drop function wait_for_test cascade');
  }
  expect(await sealEvents(service.ctx, never)).toEqual([]);
  expect(await wrong(client.org.id)).toBeNull();
  await behind.pool.end();
});

test('a command records a key before it marks events with it, even a key that the service has not loaded', async () => {
  const { org } = await service.newOrg();
  expect(await sealEvents(service.ctx, never)).toEqual([]);
  const behind = another();
  rotateEventKey(keysFile());
  const where = ['--database-url', urlOf(service.database), '--data-dir', service.directory];
  await runJson(['key', 'create', '--org', org.slug, '--name', 'by command', ...where]);
  await expect(sealEvents(behind, never)).rejects.toThrow(BrokenLog);
  expect(await sealEvents(service.ctx, never)).toEqual([]);
  expect(await wrong(org.id)).toBeNull();
  await behind.pool.end();
});

test('a key recorded by an unknown process does not block the writes of a service with its own key', async () => {
  const { pool } = service.ctx;
  const client = await service.newOrg();
  expect(await sealEvents(service.ctx, never)).toEqual([]);
  await pool.query("insert into event_keys values ('somebody', decode(repeat('00', 32), 'hex'), now())");
  await expect(sealEvents(service.ctx, never)).rejects.toThrow('the event log uses the key somebody');
  expect((await client.post('/v1/volumes', { name: 'meanwhile' })).status).toBe(200);
  await pool.query("delete from event_keys where id = 'somebody'");
  expect(await sealEvents(service.ctx, never)).toEqual([]);
  expect(await wrong(client.org.id)).toBeNull();
});

test('when two services start with different keys one of them starts; later only holders of its keys start', async () => {
  const { address, drop } = await cloneTemplate(inject('server'));
  const begin = (name: string) => {
    const flags = { databaseUrl: urlOf(address), dataDir: join(folder, name), port: '0' };
    const options = { ...flags, runtime: 'simulated', logLevel: 'error' };
    return startService(loadConfig(OPTION_NAMES, options, {}).values, () => undefined);
  };
  try {
    const names = ['one', 'two'];
    const begun = await Promise.allSettled(names.map(begin));
    const at = begun.findIndex(({ status }) => status === 'fulfilled');
    const [winner, loser] = [names[at]!, names[1 - at]!];
    expect(begun[1 - at]).toMatchObject({ status: 'rejected', reason: expect.any(ExplainedError) });
    for (const one of begun) if (one.status === 'fulfilled') await one.value.stop();

    // The key file is lost, then restored.
    const file = join(folder, winner, 'event-keys');
    cpSync(file, join(folder, 'kept'));
    rmSync(file);
    await expect(begin(winner)).rejects.toThrow(
      /event-keys is missing, and the event log is signed by the key [0-9a-f]{16}/,
    );
    expect(existsSync(file)).toBe(false);
    cpSync(join(folder, 'kept'), file);
    cpSync(join(folder, 'kept'), join(folder, loser, 'event-keys'));
    cpSync(join(folder, winner, 'secret-keys'), join(folder, loser, 'secret-keys'));
    const services = await Promise.all(names.map(begin));
    for (const one of services) await one.stop();

    const pool = openPool(address, () => undefined);
    const keys = openEventKeys({ file })();
    expect((await pool.query('select id from event_keys')).rows).toEqual([{ id: keys.current.id }]);
    const { rows: orgs } = await pool.query<{ id: string }>('select id from orgs');
    expect(orgs).toHaveLength(1);
    for (const { id } of orgs) {
      expect(await verifyStore(pool, id, { keys: keys.known }, { keys })).toMatchObject({
        wrong: null,
        unmarked: 0,
      });
    }
    await pool.end();
  } finally {
    await drop();
  }
});
