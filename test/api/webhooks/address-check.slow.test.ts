import { getEventListeners } from 'node:events';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { addMillis, now } from '../../../src/lib/instant.js';
import { checkUrl, findDestination, isAllowedAddress } from '../../../src/outbound/destination.js';
import { post } from '../../../src/outbound/post.js';
import { addressesIn, type Resolve } from '../../../src/outbound/resolve.js';
import { checkKeys } from '../../../src/secrets/secrets.js';
import { webhookSettings } from '../../../src/settings.js';
import { probeDelay, outcomeOf } from '../../../src/webhooks/circuit-breaker.js';
import { readRetryAfter, retryDelay } from '../../../src/webhooks/retry.js';
import { expectRefused, run, runJson, urlOf } from '../../support/cli.js';
import type { Client } from '../../support/client.js';
import { untilSealed } from '../../support/event-log.js';
import { startReceiver, verify, type Receiver } from '../../support/webhook-receiver.js';
import { startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';

const closed = { allow: [], http: false };
const to =
  (...addresses: string[]): Resolve =>
  () =>
    Promise.resolve(addresses);
const LOCAL = webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true });

describe('the reach of webhooks', () => {
  test.each([
    '127.0.0.1',
    '127.9.9.9',
    '0.0.0.0',
    '10.0.0.1',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '100.64.0.1',
    '169.254.169.254',
    '169.254.1.1',
    '100.100.100.200',
    '168.63.129.16',
    '192.0.0.192',
    '224.0.0.1',
    '255.255.255.255',
    '240.0.0.1',
    '198.18.0.1',
    '192.0.2.1',
    '::',
    '::1',
    'fe80::1',
    'fc00::1',
    'fd00:ec2::254',
    'ff02::1',
    '::ffff:127.0.0.1',
    '::ffff:10.0.0.1',
    '::ffff:7f00:1',
    '64:ff9b::7f00:1',
    '2002:7f00:1::',
    '2001::1',
    '2001:db8::1',
    '100::1',
    '::127.0.0.1',
  ])('excludes %s', (address) => {
    expect(isAllowedAddress(address, closed)).toBe(false);
  });

  test('that this machine has are refused although they are public, unless the operator allows them', () => {
    const own = ['8.8.8.8', '2606:4700::1111'];
    for (const address of [...own, '::ffff:8.8.8.8']) {
      expect(isAllowedAddress(address, closed, own)).toBe(false);
    }
    expect(isAllowedAddress('8.8.4.4', closed, own)).toBe(true);
    expect(isAllowedAddress('8.8.8.8', { ...closed, allow: own }, own)).toBe(true);
  });

  test('is the public internet, and the addresses that the operator allows', () => {
    for (const address of ['1.1.1.1', '8.8.8.8', '172.32.0.1', '2606:4700::1111']) {
      expect(isAllowedAddress(address, closed)).toBe(true);
    }
    const some = { allow: ['10.1.0.0/16', 'fd00:1::/32'], http: false };
    expect(
      ['10.1.2.3', '10.2.0.1', 'fd00:1::5', 'fd00:2::5'].map((each) => isAllowedAddress(each, some)),
    ).toEqual([true, false, true, false]);
  });

  test.each([
    'http://example.com/',
    'ftp://example.com/',
    'example.com',
    '//example.com',
    'https://user:secret@example.com/',
    'https://127.0.0.1/',
    'https://2130706433/',
    'https://0x7f.1/',
    'https://017700000001/',
    'https://127.1/',
    'https://[::1]/',
    'https://0/',
    'https://127.0.0.1./',
    'https://0177.0.0.0x1/',
    'https://１２７。０。０。１/',
    'https://①②⑦.0.0.1/',
    'https://127%2e0%2e0%2e1/',
    'https://[::]/',
    'https://[fe80::1%25eth0]/',
    'https://[64:ff9b::a9fe:a9fe]/',
    'https://[2002:a9fe:a9fe::]/',
    'https://[::ffff:169.254.169.254]/latest',
    'https://169.254.169.254/latest/meta-data',
    'https://10.0.0.1:8443/',
  ])('excludes the URL %s', (url) => {
    expect(() => checkUrl(url, closed)).toThrow(/url must|is not a public address/);
  });

  test('excludes a name with any forbidden address, and a name without addresses', async () => {
    const find = (host: string, resolve: Resolve) =>
      findDestination(new URL(`https://${host}/`), closed, resolve);
    for (const resolve of [to('10.0.0.1'), to('1.1.1.1', '127.0.0.1'), to('1.1.1.1', '::1'), to()]) {
      await expect(find('a.example', resolve)).rejects.toThrow('a.example');
    }
    expect(await find('a.example', to('1.1.1.1', '2606:4700::1111'))).toEqual({
      host: 'a.example',
      isName: true,
      addresses: ['1.1.1.1', '2606:4700::1111'],
    });
    // The system resolves the name from its hosts file.
    const { resolve } = LOCAL;
    await expect(find('localhost', resolve)).rejects.toThrow('not a public address');
    const nobody: Resolve = () => Promise.reject(new Error('a name server says no'));
    await expect(find('no-such-name.invalid', nobody)).rejects.toThrow('cannot be resolved');
  });

  test('follows the hosts file first', () => {
    const table =
      '127.0.0.1 localhost\n\n# 10.9.9.9 Hooks\n10.0.0.7\tHOOKS.example hooks # ours\n::1 localhost\nx y';
    expect(addressesIn(table, 'localhost')).toEqual(['127.0.0.1', '::1']);
    expect(addressesIn(table, 'hooks.EXAMPLE')).toEqual(['10.0.0.7']);
    expect(['hooks.exampl', 'ours', '10.0.0.7', 'y'].flatMap((name) => addressesIn(table, name))).toEqual([]);
  });

  test('excludes http again after the operator withdraws it', async () => {
    const receiver = await startReceiver();
    const sender = { reach: { allow: ['127.0.0.1'], http: false }, resolve: to(), timeoutMs: 60_000 };
    await expect(post(sender, receiver.url, {}, '{"data":{}}')).rejects.toThrow(
      'does not begin with https://',
    );
    expect(receiver.messages).toHaveLength(0);
    await receiver.close();
  });

  test('includes the next address when the first does not answer, and an error names each', async () => {
    const receiver = await startReceiver();
    const { port } = new URL(receiver.url);
    // Nothing listens on 127.0.0.2.
    const sender = (...addresses: string[]) => ({ ...LOCAL, resolve: to(...addresses), timeoutMs: 60_000 });
    const reach = { allow: ['127.0.0.0/8'], http: true };
    const url = `http://two.example:${port}/`;
    const answer = await post({ ...sender('127.0.0.2', '127.0.0.1'), reach }, url, {}, '{"data":{}}');
    expect([answer.status, receiver.messages.length]).toEqual([200, 1]);
    const failed = post({ ...sender('127.0.0.2', '127.0.0.3'), reach }, url, {}, '{}');
    await expect(failed).rejects.toThrow(/127\.0\.0\.2.*127\.0\.0\.3/);
    await receiver.close();
  });

  test('includes silent hosts up to the time-out, also across garbage collections, and leaves no listener on the signal', async () => {
    setFlagsFromString('--expose-gc');
    const collect = runInNewContext('gc') as () => void;
    const receiver = await startReceiver();
    receiver.answer = () => null;
    const stopping = new AbortController();
    const sent = post({ ...LOCAL, timeoutMs: 500 }, receiver.url, {}, '{"data":{}}', stopping.signal);
    const ended = sent.then(
      () => 'answered',
      ({ message }: Error) => message,
    );
    let error: string | undefined;
    void ended.then((message) => (error = message));
    await until(
      () => {
        collect();
        return Promise.resolve(error);
      },
      (message) => message !== undefined,
      20_000,
    );
    expect(error).toBe('no answer within 0.5 s');
    expect(getEventListeners(stopping.signal, 'abort')).toEqual([]);
    const cut = post({ ...LOCAL, timeoutMs: 60_000 }, receiver.url, {}, '{"data":{}}', stopping.signal);
    stopping.abort(new Error('stopping'));
    await expect(cut).rejects.toThrow('stopping');
    await receiver.close();
  });

  test('excludes a name whose address changes between the check and the connection', async () => {
    const receiver = await startReceiver();
    const { port } = new URL(receiver.url);
    let asked = 0;
    // A second lookup would return a forbidden address.
    const resolve: Resolve = () => Promise.resolve([asked++ === 0 ? '127.0.0.1' : '127.0.0.2']);
    const sender = { reach: LOCAL.reach, resolve, timeoutMs: 60_000 };
    const answer = await post(sender, `http://rebinding.example:${port}/`, {}, '{"data":{}}');
    expect([answer.status, asked]).toEqual([200, 1]);
    expect(receiver.messages[0]!.headers.host).toBe(`rebinding.example:${port}`);
    await expect(post(sender, `http://rebinding.example:${port}/`, {}, '{}')).rejects.toThrow('not a public');
    expect(receiver.messages).toHaveLength(1);
    await receiver.close();
  });

  test('is checked over HTTP for the URL at its creation, and for the name at each delivery', async () => {
    const service = await startTestService({
      settings: { webhooks: webhookSettings({ webhookHttp: true }) },
    });
    try {
      const client = await service.newOrg();
      for (const url of ['http://127.0.0.1/', 'https://[::1]/', 'nothing']) {
        const { status, body } = await client.post('/v1/webhooks', { url });
        expect([status, body.error.details]).toEqual([400, { field: 'url' }]);
      }
      const { body } = await client.post('/v1/webhooks', { url: 'http://localhost:9/' });
      const { body: tried } = await client.post(`/v1/webhooks/${body.id}/test`);
      expect(tried.results[0].error).toBe(
        'localhost is not a public address, and the operator has not allowed it',
      );
    } finally {
      await service.close();
    }
  });
});

test('retry delays triple up to four hours, vary by a fifth, and allow thirteen attempts a day', () => {
  const pauses = Array.from({ length: 14 }, (_, index) => retryDelay(index + 1, 5_000, 0.5));
  expect(pauses.slice(0, 4)).toEqual([5_000, 15_000, 45_000, 135_000]);
  expect(pauses.at(-1)).toBe(4 * 3_600_000);
  expect([retryDelay(1, 1_000, 0), retryDelay(1, 1_000, 1)].map(Math.round)).toEqual([800, 1_200]);
  let [sum, attempts] = [0, 0];
  while (sum < 86_400_000) sum += pauses[Math.min(attempts++, 13)]!;
  expect(attempts).toBe(13);
  expect([probeDelay(4), probeDelay(5), probeDelay(7), probeDelay(50)]).toEqual([0, 10_000, 40_000, 900_000]);
  const at = Date.parse('2026-11-21T10:00:00Z');
  const asked = [
    undefined,
    '90',
    '999999',
    '-1',
    'soon',
    'Sat, 21 Nov 2026 10:02:00 GMT',
    'Sat, 21 Nov 2026 09:00:00 GMT',
  ];
  expect(asked.map((text) => readRetryAfter(text, at))).toEqual([0, 90_000, 4 * 3_600_000, 0, 0, 120_000, 0]);
});

test('a status counts for the receiver or for the event', () => {
  const of = (statuses: number[]) => [...new Set(statuses.map(outcomeOf))];
  expect(of([200, 204, 299])).toEqual(['delivered']);
  expect(of([400, 409, 413, 415, 422, 451])).toEqual(['refused']);
  expect(of([301, 302, 307, 401, 403, 404, 405, 408, 429, 500, 503, 599])).toEqual(['failed']);
  expect(outcomeOf(410)).toBe('gone');
});

describe('several processes', () => {
  let first: TestService;
  let second: TestService;
  let client: Client;
  let receiver: Receiver;
  let at = 0;
  const settings = { webhooks: { ...LOCAL, firstRetryMs: 50, timeoutMs: 60_000 } };
  const later = () => addMillis(now(), at);
  beforeAll(async () => {
    first = await startTestService({ settings, now: later });
    second = await startTestService({ beside: first, settings, now: later });
    receiver = await startReceiver();
  });
  afterAll(async () => {
    await second.close();
    await first.close();
    await receiver.close();
  });

  test('send each event once while they are alive', async () => {
    client = await first.newOrg();
    await untilSealed(first.ctx.pool, client.org.id, 30_000);
    await client.post('/v1/webhooks', { url: receiver.url, event_types: ['volume_created'] });
    await Promise.all(
      Array.from({ length: 40 }, (_, index) => client.post('/v1/volumes', { name: `volume-${index}` })),
    );
    await until(
      () => Promise.resolve(new Set(receiver.messages.map(({ body }) => body.data.id)).size),
      (count) => count === 40,
    );
    expect(receiver.messages).toHaveLength(40);
  });

  test('disable a webhook that failed for days, with an event; once active, it gets the missed events', async () => {
    receiver.reset();
    receiver.answer = () => 500;
    client = await first.newOrg();
    await untilSealed(first.ctx.pool, client.org.id, 30_000);
    const { body } = await client.post('/v1/webhooks', {
      url: `${receiver.url}path`,
      event_types: ['volume_created'],
    });
    const path = `/v1/webhooks/${body.id}`;
    for (let index = 0; index < 6; index += 1) await client.post('/v1/volumes', { name: `missed-${index}` });
    await until(
      () => Promise.resolve(receiver.messages.length),
      (count) => count >= 1,
    );
    // Six days pass, a few hours at a time.
    const state = await until(
      async () => {
        at += 6 * 3_600_000;
        await client.post('/v1/volumes', { name: `after-${at}` });
        await new Promise((resolve) => setTimeout(resolve, 300));
        return (await client.get(path)).body;
      },
      ({ status }) => status === 'disabled',
      25_000,
    );
    expect(state).toMatchObject({ disabled_reason: 'failing', failing_since: expect.any(String) });
    const [event] = (await client.get('/v1/events', { event_type: 'webhook_disabled' })).body.data;
    expect(event).toMatchObject({
      actor: { kind: 'system', code: 'webhooks' },
      payload: { webhook_id: body.id, reason: 'failing', destination: receiver.url.slice(0, -1) },
    });
    receiver.reset();
    await client.post('/v1/volumes', { name: 'while-disabled' });
    await client.patch(path, { status: 'active' });
    await until(
      () => Promise.resolve(receiver.messages.map((each) => each.body.data.payload.name)),
      (names) => names.includes('while-disabled'),
    );
  });
});

describe('sandkeep webhook', () => {
  let service: TestService;
  let receiver: Receiver;
  let args: string[];
  beforeAll(async () => {
    service = await startTestService({ worker: false });
    receiver = await startReceiver();
    const client = await service.newOrg();
    args = [
      '--database-url',
      urlOf(service.database),
      '--org',
      client.org.slug,
      '--data-dir',
      service.directory,
    ];
  });
  afterAll(async () => {
    await service.close();
    await receiver.close();
  });

  test('creates, tests, lists, rotates and deletes', async () => {
    const reach = ['--webhook-allow', '127.0.0.0/8', '--webhook-http'];
    // A command with a key of its own could not decrypt the secret.
    await checkKeys(service.ctx.pool, service.ctx.keyring(), 'its file');
    const foreign = ['--secret-keys-file', join(service.directory, 'foreign-keys')];
    expectRefused(
      await run(['webhook', 'create', receiver.url, ...args, ...reach, ...foreign]),
      'are sealed under the key',
    );
    expectRefused(await run(['webhook', 'create', receiver.url, ...args]), 'url must begin with https://');
    const made = await runJson([
      'webhook',
      'create',
      receiver.url,
      ...args,
      ...reach,
      '--type',
      'org_created',
    ]);
    expect(made).toMatchObject({ secret: expect.stringMatching(/^whsec_/), event_types: ['org_created'] });
    const tested = await runJson(['webhook', 'test', made.id, ...args, ...reach]);
    expect(tested.status).toBe('delivered');
    expect(verify(made.secret, receiver.messages[0]!.headers, receiver.messages[0]!.text)).toBe(true);
    // The key that encrypts the secret is removed, and the secret stays.
    await run([
      'secrets',
      'rotate',
      '--drop-old',
      ...args.filter((word, index) => !/^--org$/.test(word) && args[index - 1] !== '--org'),
    ]);
    await runJson(['webhook', 'test', made.id, ...args, ...reach]);
    expect(verify(made.secret, receiver.messages[1]!.headers, receiver.messages[1]!.text)).toBe(true);
    expectRefused(
      await run(['webhook', 'rotate-secret', made.id, ...args, ...foreign]),
      'are sealed under the key',
    );
    const rotated = await runJson(['webhook', 'rotate-secret', made.id, ...args, '--overlap-secs', '60']);
    await runJson(['webhook', 'test', made.id, ...args, ...reach]);
    const { headers, text } = receiver.messages[2]!;
    expect([verify(made.secret, headers, text), verify(rotated.secret, headers, text)]).toEqual([true, true]);
    expect((await run(['webhook', 'deliveries', made.id, ...args])).out).toContain('webhook_tested');
    expect((await run(['webhook', 'list', ...args])).out).toContain(receiver.url);
    expect((await run(['webhook', 'delete', made.id, ...args])).out).toContain('is deleted');
    expectRefused(await run(['webhook', 'delete', made.id, ...args]), 'no webhook');
  });
});
