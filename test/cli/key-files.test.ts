import {
  copyFileSync,
  existsSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { activateKeys, registerKey } from '../../src/audit/log/activate-keys.js';
import { openEventKeys } from '../../src/audit/log/signing-key.js';
import { verifyStore } from '../../src/audit/verify/verify-store.js';
import { now } from '../../src/lib/instant.js';
import { openKeyring } from '../../src/secrets/key-file.js';
import { checkKeys } from '../../src/secrets/secrets.js';
import { webhookSettings } from '../../src/settings.js';
import { expectRefused, NO_DOCKER, run, runJson, urlOf } from '../support/cli.js';
import { untilSealed } from '../support/event-log.js';
import { startTestService, type TestService } from '../support/service.js';
import { until } from '../support/polling.js';

describe('a key file that disappears while the service runs', () => {
  let service: TestService;
  beforeAll(async () => {
    const webhooks = webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true });
    service = await startTestService({ settings: { webhooks } });
  });
  afterAll(() => service.close());

  async function without<T>(name: string, work: () => Promise<T>): Promise<T> {
    const file = join(service.directory, name);
    renameSync(file, `${file}.away`);
    try {
      return await work();
    } finally {
      expect(existsSync(file)).toBe(false);
      renameSync(`${file}.away`, file);
    }
  }

  test('for events is not created anew, and the log stays intact', async () => {
    const client = await service.newOrg();
    expect((await client.post('/v1/volumes', { name: 'before' })).status).toBe(200);
    await without('event-keys', async () => {
      await client.post('/v1/volumes', { name: 'meanwhile' });
      const said = () => Promise.resolve(service.logs.join(''));
      await until(said, (logs) => logs.includes('event-keys has gone'), 30_000);
    });
    expect((await client.post('/v1/volumes', { name: 'after' })).status).toBe(200);
    await untilSealed(service.ctx.pool, client.org.id, 30_000);
    const { known: keys } = service.ctx.eventKeys();
    expect(await verifyStore(service.ctx.pool, client.org.id, { keys })).toMatchObject({
      wrong: null,
      unmarked: 0,
    });
  });

  test('for secrets stops encryption, so no secret depends on a lost key', async () => {
    const client = await service.newOrg();
    // The service has read its keys.
    service.ctx.keyring();
    const make = () => client.post('/v1/webhooks', { url: 'http://127.0.0.1:9/' });
    expect((await without('secret-keys', make)).status).toBe(500);
    expect((await make()).status).toBe(200);
  });
});

describe('sandkeep events key', () => {
  let folder: string;
  beforeAll(() => void (folder = mkdtempSync(join(tmpdir(), 'sandkeep-event-keys-'))));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test.each([[[]], [['--rotate']]])('creates no key where no log has one: %j', async (more) => {
    const where = ['--data-dir', join(folder, 'elsewhere')];
    const refused = await run(['events', 'key', ...more, ...where]);
    expectRefused(refused, `no installation in ${join(folder, 'elsewhere')}; run "sandkeep serve`);
    expect(existsSync(join(folder, 'elsewhere'))).toBe(false);
    const file = ['--event-keys-file', join(folder, 'other-keys')];
    const named = await run(['events', 'key', ...more, ...where, ...file]);
    expectRefused(named, `there is no key in ${join(folder, 'other-keys')}`);
  });

  test('rotates the existing key', async () => {
    const where = ['--data-dir', join(folder, 'here')];
    openEventKeys({ file: join(folder, 'here', 'event-keys') })();
    const before = await runJson(['events', 'key', ...where]);
    const after = await runJson(['events', 'key', '--rotate', ...where]);
    expect(after.keys.slice(1)).toEqual(before.keys);
  });
});

describe('a key file that is missing or wrong at a start', () => {
  let service: TestService;
  let folder: string;
  let serve: string[];
  let common: string[];
  beforeAll(async () => {
    service = await startTestService({ worker: false });
    await registerKey(service.ctx.pool, service.ctx.eventKeys(), now());
    await checkKeys(service.ctx.pool, service.ctx.keyring(), 'its keys');
    const client = await service.newOrg();
    expect((await client.post('/v1/webhooks', { url: 'https://example.com/' })).status).toBe(200);
    folder = mkdtempSync(join(tmpdir(), 'sandkeep-missing-keys-'));
    common = ['--database-url', urlOf(service.database), '--data-dir', folder];
    serve = ['serve', ...common, '--port', '0', ...NO_DOCKER];
  });
  afterAll(async () => {
    rmSync(folder, { recursive: true, force: true });
    await service.close();
  });

  const own = (name: string) => join(service.directory, name);
  const here = (name: string) => join(folder, name);
  const keyFiles = () => readdirSync(folder).filter((name) => name.endsWith('-keys'));

  test('is named, and no file is written in its place', async () => {
    rmSync(here('event-keys'), { force: true });
    expectRefused(await run(serve), /event-keys is missing, and the event log is signed by the key/);
    expect(keyFiles()).toEqual([]);
    copyFileSync(own('event-keys'), here('event-keys'));
    expectRefused(await run(serve), /secret-keys is missing, and secrets are sealed under the key/);
    expectRefused(await run(['secrets', 'rotate', ...common]), 'secret-keys is missing');
    expect(keyFiles()).toEqual(['event-keys']);
  });

  test('keeps the network authority, which commands print and replace', async () => {
    const where = ['--database-url', urlOf(service.database), '--data-dir', service.directory];
    const first = await run(['network', 'authority', 'show', ...where]);
    expect(first.out).toMatch(/^-----BEGIN CERTIFICATE-----\n[^-]+-----END CERTIFICATE-----\n$/);
    const { certificate } = await runJson(['network', 'authority', 'rotate', ...where]);
    expect(certificate).not.toBe(first.out);
    expect((await run(['network', 'authority', 'show', ...where])).out).toBe(certificate);
    expectRefused(await run(['network', 'authority', 'rotate', ...common]), 'secret-keys is missing');
    expect(existsSync(here('secret-keys'))).toBe(false);
  });

  test('with other keys is named, and stays as it is', async () => {
    rmSync(here('event-keys'), { force: true });
    openEventKeys({ file: here('event-keys') })();
    openKeyring({ file: here('secret-keys') })();
    const before = keyFiles().map((name) => readFileSync(here(name), 'utf8'));
    expectRefused(await run(serve), /the event log uses the key .*event-keys/);
    copyFileSync(own('event-keys'), here('event-keys'));
    expectRefused(await run(serve), /sealed under the key .* which is not in .*secret-keys/);
    expect(keyFiles()).toEqual(['event-keys', 'secret-keys']);
    expect(readFileSync(here('secret-keys'), 'utf8')).toBe(before[1]);
  });

  test('can be replaced by a new key, which trusts the public half of the lost one', async () => {
    rmSync(here('event-keys'), { force: true });
    const { keys: printed } = await runJson(['events', 'key', '--data-dir', service.directory]);
    const where = ['events', 'key', '--lost', printed[0].public_key, '--data-dir', folder];
    const { keys } = await runJson(where);
    expect([keys.length, keys[1]]).toEqual([2, printed[0]]);
    expectRefused(await run(where), 'its keys are not lost');
    const { pool, activeKeys } = service.ctx;
    await activateKeys({ pool, activeKeys }, openEventKeys({ file: here('event-keys') })(), now());
    const { rows } = await pool.query('select id from event_keys order by added_at desc');
    expect(rows.map(({ id }) => id)).toEqual(keys.map(({ id }: { id: string }) => id));
  });
});
