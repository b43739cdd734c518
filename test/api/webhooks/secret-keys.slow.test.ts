import { join } from 'node:path';
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { addKey, dropOldKeys } from '../../../src/secrets/key-file.js';
import { setSecretKey } from '../../../src/db/instance-queries.js';
import { checkKeys } from '../../../src/secrets/secrets.js';
import { webhookSettings } from '../../../src/settings.js';
import { expectRefused, run, urlOf } from '../../support/cli.js';
import type { Client } from '../../support/client.js';
import { untilSealed } from '../../support/event-log.js';
import { startReceiver, verify, type Receiver } from '../../support/webhook-receiver.js';
import { startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';

const webhooks = {
  ...webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true }),
  firstRetryMs: 60,
  timeoutMs: 60_000,
};

let service: TestService;
let client: Client;
let receiver: Receiver;
/** This webhook gets only tests, and events about created volumes. */
let hook: { id: string; secret: string };
let file: string;
beforeAll(async () => {
  service = await startTestService({ settings: { webhooks } });
  receiver = await startReceiver();
  file = join(service.directory, 'secret-keys');
});
afterAll(async () => {
  await service.close();
  await receiver.close();
});
beforeEach(async () => {
  client = await service.newOrg();
  receiver.reset();
  await untilSealed(service.ctx.pool, client.org.id, 30_000);
  const asked = { url: receiver.url, event_types: ['volume_created'] };
  hook = (await client.post('/v1/webhooks', asked)).body;
});

const rotate = async () => (await client.post(`/v1/webhooks/${hook.id}/rotate-secret`, {})).body;
const tested = async () => (await client.post(`/v1/webhooks/${hook.id}/test`)).body;
const signs = (...secrets: string[]) => {
  const { headers, text } = receiver.messages.at(-1)!;
  return secrets.map((secret) => verify(secret, headers, text));
};
function loseKey(): string {
  const lost = service.ctx.keyring().currentId;
  addKey(file);
  dropOldKeys(file);
  return lost;
}

test('a secret whose key is lost is reported, does not count against the receiver, and can be rotated', async () => {
  const lost = loseKey();
  await client.post('/v1/volumes', { name: 'while-the-key-is-gone' });
  const [waiting] = await until(
    async () => (await client.get(`/v1/webhooks/${hook.id}/deliveries`)).body.data,
    (rows) => rows.some(({ results }: any) => results.length > 0),
  );
  expect(waiting.results[0]).toMatchObject({
    response_status: null,
    error: expect.stringContaining(`sealed under the key ${lost}`),
  });
  expect((await client.get(`/v1/webhooks/${hook.id}`)).body.failing_since).toBe(null);
  const rotated = await rotate();
  expect(rotated.previous_secret_until).toBe(null);
  const messages = await until(
    () => Promise.resolve(receiver.messages),
    ({ length }) => length > 0,
    30_000,
  );
  expect(messages[0]!.body.data.payload.name).toBe('while-the-key-is-gone');
  expect(signs(hook.secret, rotated.secret)).toEqual([false, true]);
});

test('a previous secret whose key is lost does not stop the others from signing', async () => {
  addKey(file);
  const second = await rotate();
  dropOldKeys(file);
  expect((await tested()).status).toBe('delivered');
  expect(signs(hook.secret, second.secret)).toEqual([false, true]);
  // The next rotation drops it, too.
  const third = await rotate();
  expect((await tested()).status).toBe('delivered');
  expect(signs(hook.secret, second.secret, third.secret)).toEqual([false, true, true]);
});

describe('a command', () => {
  const database = () => ['--database-url', urlOf(service.database), '--data-dir', service.directory];
  const others = () => ['--secret-keys-file', join(service.directory, 'other-keys')];

  test('with keys other than those of the services sends no test and activates no key', async () => {
    const { pool, keyring } = service.ctx;
    await checkKeys(pool, keyring(), 'its file');
    const org = ['--org', client.org.slug, '--webhook-allow', '127.0.0.1', '--webhook-http'];
    const refused = await run(['webhook', 'test', hook.id, ...org, ...database(), ...others()]);
    expectRefused(refused, 'are sealed under the key');
    expect((await client.get(`/v1/webhooks/${hook.id}/deliveries`)).body.data).toEqual([]);
    expectRefused(await run(['secrets', 'rotate', ...database(), ...others()]), 'are sealed under the key');
    await expect(checkKeys(pool, keyring(), 'its file')).resolves.toBeUndefined();
  });

  test('that cannot encrypt a secret again names its webhook and the remedy', async () => {
    loseKey();
    await setSecretKey(service.ctx.pool, service.ctx.keyring().currentId);
    const refused = await run(['secrets', 'rotate', ...database()]);
    expectRefused(refused, new RegExp(`webhook [0-9a-f-]{36} was sealed under the key [0-9a-f]{16}, which`));
    expectRefused(refused, 'sandkeep webhook rotate-secret');
  });
});
