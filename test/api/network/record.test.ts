import { afterAll, beforeAll, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import type { Denial, Flow } from '../../../src/gateway/protocol.js';
import { addMillis, now } from '../../../src/lib/instant.js';
import { turnSwitch } from '../../../src/orgs/turn-switch.js';
import { run, urlOf } from '../../support/cli.js';
import type { Client } from '../../support/client.js';
import { untilSealed } from '../../support/event-log.js';
import { ocsfFaults } from '../../support/ocsf-1-8.js';
import { until, untilStatus } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
let skippedMs = 0;
let sandboxes = 0;
/** The engine was asked to count the traffic of these. */
const counted = new Set<string>();
beforeAll(async () => {
  service = await startTestService({
    now: () => addMillis(now(), skippedMs),
    simulated: {
      failStart: ({ sandboxId, spec }) => {
        if (spec.networkRecord) counted.add(sandboxId);
        return undefined;
      },
    },
  });
  client = await service.newOrg();
});
afterAll(() => service.close());

async function startSandbox(network?: object, by = client): Promise<any> {
  sandboxes += 1;
  const { status, body } = await by.post(
    '/v1/sandboxes',
    {
      name: `s${sandboxes}`,
      image: { type: 'oci', reference: 'busybox' },
      resources: { vcpus: 1, memory_mib: 64 },
      ...(network ? { network } : {}),
    },
    { start: true, wait_for: 'running', wait_timeout: 30 },
  );
  expect([status, body.status]).toEqual([200, 'running']);
  return body;
}
function refuse(sandbox: string, more: Partial<Denial> = {}): void {
  service.ctx.network.denied({
    sandbox,
    at: Date.now(),
    kind: 'request',
    protocol: 'tls',
    name: 'files.example.net',
    address: '203.0.113.20',
    port: 443,
    rule: 'default',
    reason: 'no rule allows it',
    ...more,
  });
}
function use(sandbox: string, more: Partial<Flow> = {}): void {
  const times = { firstAt: Date.now(), lastAt: Date.now() };
  const counts = { connections: 1, sentBytes: 10, receivedBytes: 200, secrets: [] };
  service.ctx.network.flows([
    {
      sandbox,
      name: 'api.example.com',
      address: '192.0.2.1',
      port: 443,
      protocol: 'tcp',
      rule: 2,
      ...counts,
      ...times,
      ...more,
    },
  ]);
}
const deniedOf = (id: string, query = {}, by = client) => by.get(`/v1/sandboxes/${id}/network/denied`, query);
const eventsOf = async (id: string, by = client): Promise<any[]> =>
  (await by.get('/v1/events', { category: 'network', resource_id: id, limit: 100 })).body.data;
const untilEvents = (ask: () => Promise<any[]>, count: number) =>
  until(ask, (found) => found.length === count);
const typesOf = (events: any[]) => events.map(({ event_type }) => event_type);
const endMinute = () => void (skippedMs += 60_000);

test('refusals are listed by page, the latest first, and equal ones together', async () => {
  const { id, name } = await startSandbox();
  expect((await deniedOf(id)).body).toEqual({ data: [], has_more: false, next_cursor: null });
  for (let index = 0; index < 300; index += 1) refuse(id, { name: `${index}.example.net` });
  refuse(id, { name: '250.example.net', count: 2 });
  const first = (await deniedOf(id, { limit: 100 })).body;
  expect(first.data.slice(0, 2)).toEqual([
    {
      kind: 'request',
      protocol: 'tls',
      name: '250.example.net',
      address: '203.0.113.20',
      port: 443,
      rule: 'default',
      reason: 'no rule allows it',
      secret: null,
      count: 3,
      first_at: expect.any(String),
      last_at: expect.any(String),
    },
    expect.objectContaining({ name: '299.example.net', count: 1 }),
  ]);
  const second = (await deniedOf(id, { limit: 100, cursor: first.next_cursor })).body;
  expect([second.data.at(-1).name, second.has_more]).toEqual(['100.example.net', false]);
  const byName = await client.get(`/v1/sandboxes/by-name/${name}/network/denied`, { limit: 1 });
  expect(byName.body.data[0].name).toBe('250.example.net');
  const other = await startSandbox();
  const replayed = await deniedOf(other.id, { cursor: first.next_cursor });
  expect([replayed.status, replayed.body.error.code]).toEqual([400, 'invalid_request']);
  expect((await deniedOf(id, {}, await service.newOrg())).status).toBe(404);
});

test('a request turns the record on: destinations each minute, refusals at once', async () => {
  const { id, spec } = await startSandbox({ record: true });
  expect(spec.network.record).toBe(true);
  use(id, { secrets: ['API_KEY'] });
  use(id);
  refuse(id);
  // A minute of the clock may end here, and only destinations wait for it.
  const isDenial = ({ event_type }: any) => event_type === 'network_destination_denied';
  await untilEvents(async () => (await eventsOf(id)).filter(isDenial), 1);
  refuse(id);
  refuse(id, { count: 3 });
  endMinute();
  const events = await untilEvents(() => eventsOf(id), 3);
  expect(new Set(typesOf(events))).toEqual(
    new Set(['network_destination_denied', 'network_destination_used']),
  );
  const payloads = events.map(({ payload }) => payload);
  const used = payloads.find(({ verdict }) => verdict === 'allowed');
  expect(used).toMatchObject({
    sandbox_id: id,
    domain: 'api.example.com',
    address: '192.0.2.1',
    port: 443,
    protocol: 'tcp',
    rule: 2,
    connections: 2,
    sent_bytes: 20,
    received_bytes: 400,
    secrets: ['API_KEY'],
  });
  const counts = payloads.filter(({ verdict }) => verdict === 'denied').map(({ count }) => count);
  expect(counts.toSorted((one, other) => one - other)).toEqual([1, 4]);
  expect(events[0].actor).toMatchObject({ kind: 'system', code: 'network' });

  await untilSealed(service.ctx.pool, client.org.id);
  const { text } = await client.get('/v1/events/export', { format: 'ocsf', category: 'network' });
  const written = text
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(written.flatMap(ocsfFaults)).toEqual([]);
  expect(written.find(({ unmapped }) => unmapped.payload.verdict === 'allowed')).toMatchObject({
    class_uid: 4001,
    activity_name: 'Traffic',
    src_endpoint: { uid: id },
    dst_endpoint: { hostname: 'api.example.com', ip: '192.0.2.1', port: 443 },
    connection_info: { direction_id: 2, protocol_name: 'tcp' },
    traffic: { bytes: 420, bytes_out: 20, bytes_in: 400 },
    count: 2,
  });
});

test('the operator turns it on for an organization, and only the counts of too many are recorded', async () => {
  const mine = await service.newOrg();
  const { id } = await startSandbox(undefined, mine);
  use(id);
  refuse(id);
  endMinute();
  const args = ['events', 'network', '--database-url', urlOf(service.database), '--org', mine.org.slug];
  // The pass of the minute has found the record off when a later minute has been written.
  const known = await startSandbox({ record: true });
  refuse(known.id);
  await untilEvents(() => eventsOf(known.id), 1);
  expect(await eventsOf(id, mine)).toEqual([]);
  expect((await run([...args, '--record', 'on'])).out).toContain('of all sandboxes');
  const later = await startSandbox(undefined, mine);
  expect([id, known.id, later.id].map((each) => counted.has(each))).toEqual([false, true, true]);
  for (let port = 1; port <= 130; port += 1) use(id, { port });
  endMinute();
  const events = await untilEvents(
    async () => (await mine.get('/v1/events', { event_type: 'network_record_cut' })).body.data,
    1,
  );
  expect(events[0].payload).toMatchObject({
    connections: 30,
    sent_bytes: 300,
    received_bytes: 6_000,
    refusals: 0,
  });
  expect(await eventsOf(id, mine)).toHaveLength(100);
  const change = await turnSwitch(
    service.ctx.pool,
    mine.org.id,
    { name: 'network_record', on: false },
    operator('test'),
  );
  expect(change).toEqual({ before: true, after: false });
});

test('a violation of a secret is always recorded, and ends the sandbox where its entry says so', async () => {
  const { id } = await startSandbox();
  const violation = { kind: 'secret', secret: 'API_KEY', reason: 'the host is not allowed' } as const;
  refuse(id, violation);
  await untilEvents(() => eventsOf(id), 1);
  expect((await eventsOf(id))[0]).toMatchObject({
    event_type: 'network_secret_withheld',
    payload: { secret: 'API_KEY', terminates: false, domain: 'files.example.net' },
  });
  expect((await client.get(`/v1/sandboxes/${id}`)).body.status).toBe('running');
  refuse(id, { ...violation, terminates: true });
  const stopped = await untilStatus(client, id, 'stopped');
  expect(stopped.body).toMatchObject({
    stop_reason: 'secret_violation',
    stop_message: 'it sent the placeholder of a secret to a place that is not allowed',
  });
  const { body } = await client.get('/v1/events', { event_type: 'sandbox_stop_requested', resource_id: id });
  expect(body.data[0]).toMatchObject({ actor: { code: 'network' }, payload: { reason: 'secret_violation' } });
  expect((await deniedOf(id)).body.data[0]).toMatchObject({ kind: 'secret', secret: 'API_KEY', count: 2 });
  const found = await client.get('/v1/sandboxes', { stop_reason: 'secret_violation' });
  expect(found.body.data.map((each: any) => each.id)).toEqual([id]);
});

test('the rest is written when the service stops', async () => {
  const { id } = await startSandbox({ record: true });
  use(id);
  await service.stopWorker();
  expect(typesOf(await eventsOf(id))).toEqual(['network_destination_used']);
});
