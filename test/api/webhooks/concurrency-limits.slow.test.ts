import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { sleep } from '../../../src/lib/sleep.js';
import { webhookSettings } from '../../../src/settings.js';
import type { Client } from '../../support/client.js';
import { untilSealed } from '../../support/event-log.js';
import { countWaitingCommits, whileCommitsWait } from '../../support/held-commits.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startReceiver, type Receiver } from '../../support/webhook-receiver.js';
import { startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';

const webhooks = {
  ...webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true }),
  timeoutMs: 60_000,
  served: { total: 4, each: 2 },
  yieldAfterMs: 100,
  tests: { total: 3, each: 2 },
};
const only = { event_types: ['volume_created'] };

let service: TestService;
let good: Receiver;
let bad: Receiver;
/** How many more times reading the keys fails. */
let breaks = 0;
beforeAll(async () => {
  service = await startTestService({ settings: { webhooks } });
  const { keyring } = service.ctx;
  service.ctx.keyring = () => {
    if (breaks === 0) return keyring();
    breaks -= 1;
    throw new Error('no keys for a moment');
  };
});
const warnings: Error[] = [];
const warn = (warning: Error) => void warnings.push(warning);
process.on('warning', warn);
afterAll(async () => {
  await service.close();
  process.off('warning', warn);
  expect(warnings.filter(({ name }) => name === 'MaxListenersExceededWarning')).toEqual([]);
});
beforeEach(async () => {
  [good, bad] = [await startReceiver(), await startReceiver()];
});
afterEach(async () => {
  // The retries of one test take no slot in the next one.
  await service.ctx.pool.query(`update webhooks set status = 'disabled'`);
  await Promise.all([good.close(), bad.close()]);
});

/** Seals all events of the new organization: a webhook created later would get them. */
async function newOrg(): Promise<Client> {
  const client = await service.newOrg();
  await untilSealed(service.ctx.pool, client.org.id, 60_000);
  return client;
}
const make = (client: Client, name: string) => client.post('/v1/volumes', { name });
const received = (receiver: Receiver, count: number) =>
  until(
    () => Promise.resolve(receiver.messages.length),
    (length) => length >= count,
    60_000,
  );

test('silent receivers of one organization leave slots to others', async () => {
  bad.answer = () => null;
  const [many, few] = [await newOrg(), await newOrg()];
  for (let index = 0; index < 6; index += 1) {
    await many.post('/v1/webhooks', { url: `${bad.url}${index}`, ...only });
  }
  await make(many, 'one');
  await received(bad, 2);
  await few.post('/v1/webhooks', { url: good.url, ...only });
  await make(few, 'other');
  await received(good, 1);
  expect(new Set(bad.paths).size).toBe(2);
});

test('an organization with many slow receivers yields the next slot to an organization without one', async () => {
  const [first, second, few] = [await newOrg(), await newOrg(), await newOrg()];
  const held: (() => void)[] = [];
  bad.answer = () => new Promise((resolve) => held.push(() => resolve(200)));
  for (const many of [first, second]) {
    for (let index = 0; index < 4; index += 1) {
      await many.post('/v1/webhooks', { url: `${bad.url}${many.org.slug}/${index}`, ...only });
    }
    await make(many, 'slow');
  }
  await received(bad, 4);
  let before = 0;
  good.answer = () => {
    before = bad.messages.length;
    return 200;
  };
  await few.post('/v1/webhooks', { url: good.url, ...only });
  await make(few, 'quick');
  await untilSealed(service.ctx.pool, few.org.id, 60_000);
  // One at a time, in order of arrival.
  for (let released = 0; good.messages.length === 0; released += 1) {
    held[released]!();
    await until(
      () => Promise.resolve(bad.messages.length + good.messages.length),
      (count) => count > 4 + released,
      60_000,
    );
  }
  // A pass may have been in progress.
  expect(before).toBeLessThanOrEqual(5);
  bad.answer = () => 200;
  for (const release of held) release();
  await received(bad, 8);
});

test('a slow webhook with a backlog yields its slot while another waits', async () => {
  const [slow, quick] = [await newOrg(), await newOrg()];
  const count = 40;
  bad.answer = async () => {
    // Ten rounds of this take longer than a busy machine needs for the other delivery.
    if (good.messages.length === 0) await sleep(3_000);
    return 200;
  };
  // These take both slots of the organization, which are the only ones.
  const paths = [];
  for (let index = 0; index < 2; index += 1) {
    const { body } = await slow.post('/v1/webhooks', { url: bad.url, ...only });
    paths.push(`/v1/webhooks/${body.id}`);
  }
  const held = await newOrg();
  const silent = await startReceiver();
  silent.answer = () => null;
  for (let index = 0; index < 2; index += 1) await held.post('/v1/webhooks', { url: silent.url, ...only });
  await make(held, 'held');
  await received(silent, 2);
  for (const path of paths) await slow.patch(path, { status: 'disabled' });
  for (let index = 0; index < count; index += 1) await make(slow, `volume-${index}`);
  for (const path of paths) await slow.patch(path, { status: 'active' });
  await quick.post('/v1/webhooks', { url: good.url, ...only });
  await received(bad, 8);
  await make(quick, 'quick');
  await received(good, 1);
  expect(bad.messages.length).toBeLessThan(2 * count);
  await received(bad, 2 * count);
  await silent.close();
});

test('when one attempt throws, the others in progress are awaited', async () => {
  const client = await newOrg();
  let release: () => void = () => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  bad.answer = () => released.then(() => 200);
  const { body } = await client.post('/v1/webhooks', { url: bad.url, ...only });
  await client.patch(`/v1/webhooks/${body.id}`, { status: 'disabled' });
  for (let index = 0; index < 12; index += 1) await make(client, `volume-${index}`);
  await untilSealed(service.ctx.pool, client.org.id, 60_000);
  breaks = 1;
  await client.patch(`/v1/webhooks/${body.id}`, { status: 'active' });
  await received(bad, 3);
  // Any further attempt would precede the delivery to another organization.
  const other = await newOrg();
  await other.post('/v1/webhooks', { url: good.url, ...only });
  for (let looks = 1; looks <= 2; looks += 1) {
    await make(other, `look-${looks}`);
    await received(good, looks);
  }
  expect([breaks, bad.messages.length]).toEqual([0, 3]);
  release();
  await received(bad, 12);
});

test('the API limits concurrent webhook tests in total and for each organization', async () => {
  let release: () => void = () => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  bad.answer = () => released.then(() => 200);
  const clients = [await newOrg(), await newOrg()];
  const testers = [];
  for (const client of clients) {
    const { body } = await client.post('/v1/webhooks', { url: bad.url, ...only });
    testers.push(() => client.post(`/v1/webhooks/${body.id}/test`));
  }
  const [one, other] = [testers[0]!, testers[1]!];
  const held = [one(), one()];
  await received(bad, 2);
  const refused = await one();
  expect([refused.status, refused.body.error.code]).toEqual([429, 'rate_limited']);
  expect(refused.headers.get('retry-after')).toBe('5');
  held.push(other());
  await received(bad, 3);
  expect((await other()).status).toBe(429);
  release();
  expect((await Promise.all(held)).map(({ body }) => body.status)).toEqual(Array(3).fill('delivered'));
  expect((await one()).body.status).toBe('delivered');
});

test('slow commits of deliveries leave database connections to starts', async () => {
  const { served } = webhookSettings({});
  const separate = await startTestService({ settings: { webhooks: { ...webhooks, served } } });
  try {
    const clients = [await separate.newOrg(), await separate.newOrg()];
    for (const client of clients) {
      for (let index = 0; index < served.each; index += 1) {
        await client.post('/v1/webhooks', { url: `${good.url}${index}`, ...only });
      }
    }
    const other = await separate.newOrg();
    await whileCommitsWait(separate.ctx.pool, 'webhook_deliveries', async () => {
      for (const client of clients) await make(client, 'many');
      const most = clients.length * webhooks.connections.each;
      await until(
        () => countWaitingCommits(separate.ctx.pool),
        (count) => count >= most,
        60_000,
      );
      const path = '/v1/sandboxes?start=true&wait_for=running&wait_timeout=120';
      const { body } = await other.post(path, smallRequest('beside'));
      expect(body.status).toBe('running');
    });
    await received(good, clients.length * served.each);
  } finally {
    await separate.close();
  }
});
