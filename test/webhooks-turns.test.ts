import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { sleep } from '../src/lib/sleep.js';
import { webhookSettings } from '../src/webhooks/settings.js';
import type { Client } from './support/client.js';
import { startReceiver, type Receiver } from './support/receiver.js';
import { startTestService, type TestService } from './support/service.js';
import { until } from './support/until.js';

const webhooks = {
  ...webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true }),
  timeoutMs: 60_000,
  served: { total: 4, each: 2 },
  turnMs: 100,
  tests: { total: 3, each: 2 },
};
const only = { event_types: ['volume_created'] };

let service: TestService;
let good: Receiver;
let bad: Receiver;
beforeAll(async () => {
  service = await startTestService({ settings: { webhooks } });
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
afterEach(() => Promise.all([good.close(), bad.close()]));

const make = (client: Client, name: string) => client.post('/v1/volumes', { name });
const received = (receiver: Receiver, count: number) =>
  until(
    () => Promise.resolve(receiver.messages.length),
    (length) => length >= count,
    60_000,
  );

test('receivers of one organization that are silent leave places to others', async () => {
  bad.answer = () => null;
  const [many, few] = [await service.newOrg(), await service.newOrg()];
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

test('one that is slow and has much to be sent gives up its place while another waits', async () => {
  const [slow, quick] = [await service.newOrg(), await service.newOrg()];
  const count = 40;
  bad.answer = async () => {
    if (good.messages.length === 0) await sleep(300);
    return 200;
  };
  // Both places of its own, and the only two of others.
  const paths = [];
  for (let index = 0; index < 2; index += 1) {
    const { body } = await slow.post('/v1/webhooks', { url: bad.url, ...only });
    paths.push(`/v1/webhooks/${body.id}`);
  }
  const held = await service.newOrg();
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
}, 180_000);

test('few webhooks are tested at once over the API, and fewer of one organization', async () => {
  let release: () => void = () => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  bad.answer = () => released.then(() => 200);
  const clients = [await service.newOrg(), await service.newOrg()];
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
