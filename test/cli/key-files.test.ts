import { existsSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { openEventKeys } from '../../src/audit/log/signing-key.js';
import { verifyStore } from '../../src/audit/verify/verify-store.js';
import { webhookSettings } from '../../src/settings.js';
import { expectRefused, run, runJson } from '../support/cli.js';
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
