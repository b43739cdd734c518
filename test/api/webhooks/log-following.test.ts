import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { insertEvent } from '../../../src/audit/events/queries.js';
import { sealEvents } from '../../../src/audit/log/seal.js';
import { addMillis, now } from '../../../src/lib/instant.js';
import { webhookSettings } from '../../../src/settings.js';
import { enqueueDeliveries } from '../../../src/webhooks/enqueue-deliveries.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';

/** This service seals and follows the log only on request. */
let service: TestService;
/** How far its clock is ahead, in milliseconds. */
let ahead = 0;
beforeAll(async () => {
  const webhooks = webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true });
  service = await startTestService({
    worker: false,
    settings: { webhooks },
    now: () => addMillis(now(), ahead),
  });
});
afterAll(() => service.close());

async function write({ org }: Client, event_type: string, occurred_at: string): Promise<void> {
  const content = {
    org_id: org.id,
    id: uuidv7(),
    occurred_at,
    category: 'test',
    event_type,
    actor: operator('test'),
    payload: null,
    resource_id: null,
  };
  await insertEvent(service.ctx.pool, {
    ...content,
    actor_kind: 'system',
    actor_id: 'operator',
    leaf: null,
  });
}

async function followed(client: Client, id: string): Promise<string[]> {
  await sealEvents(service.ctx, new AbortController().signal);
  while (await enqueueDeliveries(service.ctx, client.org.id, id));
  const { body } = await client.get(`/v1/webhooks/${id}/deliveries`, { limit: 100 });
  return body.data.map(({ event_type }: { event_type: string }) => event_type);
}

const make = async (client: Client, event_types: string[]): Promise<string> =>
  (await client.post('/v1/webhooks', { url: 'http://127.0.0.1:9/', event_types })).body.id;

test('a webhook gets events from a process whose clock is slow, but no history', async () => {
  const client = await service.newOrg();
  const id = await make(client, ['!webhook_created', '!api_key_created', '!org_created', '!volume_created']);
  await write(client, 'behind', addMillis(now(), -20_000));
  await write(client, 'history', addMillis(now(), -3_600_000));
  await write(client, 'ahead', addMillis(now(), 20_000));
  expect((await followed(client, id)).toSorted()).toEqual(['ahead', 'behind']);
});

test('a webhook created by a process whose clock is ahead misses no events', async () => {
  const client = await service.newOrg();
  ahead = 3_600_000;
  const id = await make(client, ['sandbox_failed']);
  ahead = 0;
  await write(client, 'sandbox_failed', now());
  expect(await followed(client, id)).toEqual(['sandbox_failed']);
});

test('the log is read further once half of the found events were tried', async () => {
  const client = await service.newOrg();
  const id = await make(client, ['sandbox_failed']);
  for (let count = 0; count < 130; count += 1) await write(client, 'sandbox_failed', now());
  expect(await followed(client, id)).toHaveLength(100);
  const tryAll = (count: number) =>
    service.ctx.pool.query(
      `update webhook_deliveries set attempts = 1, expires_at = now() + interval '1 hour' where id in (
         select id from webhook_deliveries where webhook_id = $1 and attempts = 0 order by seq limit $2)`,
      [id, count],
    );
  await tryAll(49);
  expect(await enqueueDeliveries(service.ctx, client.org.id, id)).toBe(false);
  expect(await followed(client, id)).toHaveLength(100);
  await tryAll(1);
  await enqueueDeliveries(service.ctx, client.org.id, id);
  const { rows } = await service.ctx.pool.query<{ count: number }>(
    'select count(*) from webhook_deliveries where webhook_id = $1',
    [id],
  );
  expect(rows[0]!.count).toBe(130);
});
