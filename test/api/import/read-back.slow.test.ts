import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sealEvents } from '../../../src/audit/log/seal.js';
import type { Client } from '../../support/client.js';
import {
  BARE_SPEC,
  clientOf,
  importAll,
  importedEvents,
  line,
  listAll,
  type Line,
} from '../../support/import-lines.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';

const NOW = '2026-03-20T00:00:00.000000Z';
const BARE_EPHEMERAL = { ...BARE_SPEC, lifecycle: { ephemeral: true } };
/** History is in March 2026; the key that reads it is made later. */
const MARCH = { since: '2026-03-01', until: '2026-04-01' };

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ worker: false, now: () => NOW });
});
afterAll(() => service.close());

describe('imported history, read over HTTP', () => {
  test('has every status, and a reason only while a sandbox is starting', async () => {
    const org = line.org();
    const statuses = ['created', 'starting', 'running', 'stopping', 'stopped', 'failed'];
    const sandboxes = statuses.map((status) => line.sandbox(org, { status, status_reason: 'scheduling' }));
    await importAll(service, [org, ...sandboxes]);
    const client = await clientOf(service, org);
    const answers = await Promise.all(sandboxes.map(({ id }) => client.get(`/v1/sandboxes/${id}`)));
    expect(answers.map(({ body }) => [body.status, body.status_reason])).toEqual(
      statuses.map((status) => [status, status === 'starting' ? 'scheduling' : null]),
    );
  });

  test('has times of any offset, to the microsecond', async () => {
    const org = line.org();
    const sandbox = line.sandbox(org, {
      created_at: '2026-03-01T01:30:00.1234569+05:30',
      started_at: '2026-02-28t23:59:59.999999-00:01',
      stopped_at: '2026-03-01T00:00:59.999999Z',
    });
    await importAll(service, [org, sandbox]);
    const { body } = await (await clientOf(service, org)).get(`/v1/sandboxes/${sandbox['id']}`);
    expect(body.created_at).toBe('2026-02-28T20:00:00.123456Z');
    expect(body.started_at).toBe('2026-03-01T00:00:59.999999Z');
    expect(body.stopped_at).toBe('2026-03-01T00:00:59.999999Z');
  });

  test('has leap seconds, and cuts times of nine digits after the microsecond', async () => {
    const org = line.org();
    const times = { created_at: '2016-12-31T23:59:60.5Z', started_at: '2026-03-01T00:00:00.123456789Z' };
    const sandbox = line.sandbox(org, times);
    await importAll(service, [org, sandbox]);
    const client = await clientOf(service, org);
    const { body } = await client.get(`/v1/sandboxes/${sandbox['id']}`);
    expect([body.created_at, body.started_at]).toEqual([
      '2017-01-01T00:00:00.500Z',
      '2026-03-01T00:00:00.123456Z',
    ]);
    const after = async (created_after: string) =>
      (await client.get('/v1/sandboxes', { created_after })).body.data.length;
    expect(await after('2016-12-31T23:59:60.499999999Z')).toBe(1);
    expect(await after('2016-12-31T23:59:60.5Z')).toBe(0);
  });

  test('has all four kinds of actor, one by one and in the list', async () => {
    const org = line.org();
    const actors = [
      { kind: 'user', user_id: uuidv7(), label: 'Ada', redacted_email: 'a***a@e***.com' },
      { kind: 'api_key', api_key_id: uuidv7(), name: 'ci' },
      { kind: 'system', code: 'scheduler', label: 'The scheduler' },
      { kind: 'ssh_key', key_id: uuidv7(), fingerprint: 'SHA256:abc', label: 'laptop' },
      { kind: 'ssh_key', key_id: uuidv7(), fingerprint: 'SHA256:def', label: null },
      { kind: 'ssh_key', key_id: uuidv7(), fingerprint: 'SHA256:ghi' },
    ];
    const events = actors.map((actor, index) =>
      line.event(org, { actor, timestamp: `2026-03-01T00:00:0${9 - index}Z` }),
    );
    await importAll(service, [org, ...events]);
    const client = await clientOf(service, org);
    const expected = events.map(({ kind: _kind, ...event }) => event);
    expect(await importedEvents(client)).toEqual(expected);
    for (const event of expected) {
      const { body } = await client.get(`/v1/events/${event['id']}`);
      expect(body).toEqual(event);
    }
    for (const [actor, id] of [
      [actors[0], actors[0]!.user_id],
      [actors[1], actors[1]!.api_key_id],
      [actors[2], 'scheduler'],
      [actors[3], actors[3]!.key_id],
    ]) {
      const found = await importedEvents(client, { actor_id: id as string });
      expect(found.map((event) => event.actor)).toEqual([actor]);
    }
  });

  test('finds a payload of any JSON value by its resource', async () => {
    const org = line.org();
    const sandbox = line.sandbox(org);
    const payloads = [
      null,
      true,
      0,
      -1.5e-7,
      'text \\N \t\r\n \u2028 ☃',
      [],
      [1, [2, { a: null }]],
      {},
      { '': '', 'a.b': { 'c"d': [1e21] } },
      { sandbox_id: sandbox['id'], name: 'x' },
    ];
    const events = payloads.map((payload) => line.event(org, { payload }));
    await importAll(service, [sandbox, ...events, org]);
    const client = await clientOf(service, org);
    for (const { id, payload } of events) {
      const { body } = await client.get(`/v1/events/${id}`);
      expect(body.payload).toEqual(payload);
    }
    const about = await importedEvents(client, { resource_id: sandbox['id'] });
    expect(about.map(({ id }) => id)).toEqual([events.at(-1)!['id']]);
  });

  test('omits an ended ephemeral sandbox from the list, frees its name and keeps its usage', async () => {
    const org = line.org();
    const ended = (['stopped', 'failed'] as const).map((status) =>
      line.sandbox(org, { status, ephemeral: true, name: 'brief', spec: BARE_EPHEMERAL }),
    );
    const run = line.run(ended[0]!);
    const running = line.sandbox(org, { status: 'running', ephemeral: true });
    expect(await importAll(service, [org, ...ended, run, running])).toMatchObject({ bad: [] });

    const client = await clientOf(service, org);
    expect((await listAll(client, '/v1/sandboxes')).map(({ id }) => id)).toEqual([running['id']]);
    for (const { id } of ended) expect((await client.get(`/v1/sandboxes/${id}`)).status).toBe(404);
    const usage = await client.get('/v1/billing/usage/sandbox', MARCH);
    expect(usage.body.rows).toMatchObject([{ sandbox_id: ended[0]!['id'], vcpu_seconds: 120 }]);
    expect((await client.post('/v1/sandboxes', smallRequest('brief'))).status).toBe(200);
    expect(await importAll(service, ended)).toMatchObject({ bad: [], unchanged: { sandbox: 2 } });
  });

  test('takes `ephemeral` from the sandbox when its spec omits it', async () => {
    const org = line.org();
    const sandbox = line.sandbox(org, {
      status: 'running',
      ephemeral: true,
      spec: { ...BARE_SPEC, lifecycle: {} },
    });
    await importAll(service, [org, sandbox]);
    const { body } = await (await clientOf(service, org)).get(`/v1/sandboxes/${sandbox['id']}`);
    expect([body.ephemeral, body.spec.lifecycle.ephemeral]).toEqual([true, true]);
  });

  test('finds imported sandboxes by label, without removed ones', async () => {
    const org = line.org();
    const labels = { team: 'ml', 'odd key': '{"json": [1]}' };
    const here = line.sandbox(org, { spec: { ...BARE_SPEC, labels } });
    const gone = line.sandbox(org, {
      spec: { ...BARE_SPEC, labels },
      removed_at: '2026-03-02T00:00:00Z',
    });
    await importAll(service, [here, gone, org]);
    const client = await clientOf(service, org);
    for (const filter of [{ team: 'ml' }, { 'odd key': '{"json": [1]}' }, labels]) {
      const found = await listAll(client, '/v1/sandboxes', { labels: JSON.stringify(filter) });
      expect(found.map(({ id }) => id)).toEqual([here['id']]);
    }
    expect(await listAll(client, '/v1/sandboxes', { labels: '{"team":"other"}' })).toEqual([]);
  });

  test('has runs as usage; a removed sandbox is not found but named in the directory', async () => {
    const org = line.org();
    const here = line.sandbox(org, { name: 'a-here' });
    const gone = line.sandbox(org, { name: 'b-gone', removed_at: '2026-03-03T00:00:00Z' });
    await importAll(service, [
      line.run(here, {
        started_at: '2026-03-01T23:59:59.5Z',
        stopped_at: '2026-03-02T00:00:01Z',
        vcpus: 3,
        memory_mib: 100,
        disk_mib: 0,
      }),
      line.run(gone, { started_at: '2026-03-02T00:00:00Z', stopped_at: '2026-03-02T00:00:00.000001Z' }),
      org,
      gone,
      here,
    ]);
    const client = await clientOf(service, org);
    expect((await client.get(`/v1/sandboxes/${gone['id']}`)).status).toBe(404);
    expect((await client.get('/v1/sandboxes/by-name/b-gone')).status).toBe(404);
    expect((await listAll(client, '/v1/sandboxes')).map(({ id }) => id)).toEqual([here['id']]);

    const { body } = await client.get('/v1/billing/usage/sandbox', MARCH);
    const quantities = (vcpu_seconds: number, mem_mib_seconds: number, disk_mib_seconds: number) => ({
      vcpu_seconds,
      mem_mib_seconds,
      disk_mib_seconds,
    });
    expect(body.rows).toEqual([
      { day: '2026-03-01T00:00:00Z', sandbox_id: here['id'], ...quantities(1.5, 50, 0) },
      { day: '2026-03-02T00:00:00Z', sandbox_id: here['id'], ...quantities(3, 100, 0) },
      { day: '2026-03-02T00:00:00Z', sandbox_id: gone['id'], ...quantities(0.000002, 0.000512, 0.001024) },
    ]);
    expect(body.sandboxes).toEqual([here, gone].map(({ id, name, slug }) => ({ id, name, slug })));
  });

  test('counts runs without waiting for a concurrent close of others', async () => {
    const org = line.org();
    const sandbox = line.sandbox(org);
    await importAll(service, [org, sandbox, line.run(sandbox)]);
    const { rows } = await service.ctx.pool.query(
      'select distinct part from usage_totals where org_id = $1',
      [org['id']],
    );
    expect(rows).toEqual([{ part: -1 }]);
    const part = await service.ctx.pool.query('select usage_part() between 0 and 15 as of_sessions');
    expect(part.rows).toEqual([{ of_sessions: true }]);
  });

  test('counts an open run until now, or until its sandbox is deleted', async () => {
    const org = line.org();
    const sandbox = line.sandbox(org, { status: 'running', started_at: '2026-03-19T00:00:00Z' });
    const open = line.run(sandbox, {
      started_at: '2026-03-19T00:00:00Z',
      stopped_at: null,
      vcpus: 1,
    });
    await importAll(service, [open, sandbox, org]);
    const client = await clientOf(service, org);
    const used = async () => (await client.get('/v1/billing/usage/sandbox', MARCH)).body.rows;
    const until = [expect.objectContaining({ day: '2026-03-19T00:00:00Z', vcpu_seconds: 86_400 })];
    expect(await used()).toEqual(until);

    for (const verb of ['start', 'stop']) {
      const { status, body } = await client.post(`/v1/sandboxes/${sandbox['id']}/${verb}`);
      expect([status, body.error.code]).toEqual([409, 'invalid_state_transition']);
    }
    expect((await client.delete(`/v1/sandboxes/${sandbox['id']}`)).status).toBe(200);
    expect(await used()).toEqual(until);
    const { rows } = await service.ctx.pool.query('select stopped_at from runs where id = $1', [open['id']]);
    expect(rows).toEqual([{ stopped_at: NOW }]);
  });

  test('has volumes and accruals; removed or absent volumes have rows and no name', async () => {
    const org = line.org();
    const host = line.volume(org, { volume_kind: 'host', name: null });
    const data = line.volume(org, { name: 'data' });
    const gone = line.volume(org, { name: 'gone', removed_at: '2026-03-02T00:00:00Z' });
    const never = line.volume(org);
    await importAll(service, [
      line.accrual(never, { used_mib: 0.1, to: '2026-03-01T00:00:03Z' }),
      line.accrual(host, { used_mib: 1 }),
      line.accrual(gone, { used_mib: 2 }),
      line.accrual(data, { from: '2026-03-01T23:59:58Z', to: '2026-03-02T00:00:01Z', used_mib: 10.5 }),
      line.accrual(data, { from: '2026-03-02T00:00:01Z', to: '2026-03-02T00:00:01Z', used_mib: 7 }),
      gone,
      data,
      host,
      org,
    ]);
    const client = await clientOf(service, org);
    const { body: volumes } = await client.get('/v1/volumes');
    expect(volumes.map(({ id, kind, name }: any) => ({ id, kind, name }))).toEqual([
      { id: host['id'], kind: 'host', name: null },
      { id: data['id'], kind: 'managed', name: 'data' },
    ]);
    expect(volumes[1].created_at).toBe('2026-03-01T00:00:00Z');
    expect((await client.get('/v1/volumes/default')).body.id).toBe(host['id']);

    const { body } = await client.get('/v1/billing/usage/storage', MARCH);
    const day = (number: number, volume: Line, mib_seconds: number) => ({
      day: `2026-03-0${number}T00:00:00Z`,
      volume_id: volume['id'],
      mib_seconds,
    });
    expect(body.rows.slice(0, 1)).toEqual([day(1, data, 21)]);
    expect(body.rows).toHaveLength(5);
    expect(body.rows).toEqual(
      expect.arrayContaining([day(1, host, 60), day(1, gone, 120), day(1, never, 0.3), day(2, data, 10.5)]),
    );
    expect(body.volumes).toEqual([
      { id: data['id'], name: 'data' },
      { id: host['id'], name: null },
    ]);

    expect((await client.delete(`/v1/volumes/${data['id']}`)).status).toBe(200);
    expect((await client.delete(`/v1/volumes/${gone['id']}`)).status).toBe(404);
    const refused = await client.delete(`/v1/volumes/${host['id']}`);
    expect([refused.status, refused.body.error.code]).toEqual([409, 'invalid_request']);
  });

  test('has a host volume even when the file has none', async () => {
    const org = line.org();
    await importAll(service, [org]);
    const client = await clientOf(service, org);
    expect((await client.get('/v1/volumes/default')).body).toMatchObject({ kind: 'host', name: null });
  });

  test('replaces an unused host volume with the imported one', async () => {
    const client = await service.newOrg();
    const org = { kind: 'org', ...client.org };
    const host = line.volume(org, { volume_kind: 'host', name: null });
    expect((await client.get('/v1/volumes/default')).body.id).not.toBe(host['id']);
    expect((await importAll(service, [host])).imported.volume).toBe(1);
    expect((await client.get('/v1/volumes/default')).body.id).toBe(host['id']);
    expect((await client.get('/v1/volumes')).body).toHaveLength(1);
    expect((await importAll(service, [host])).unchanged.volume).toBe(1);
  });
});

describe('an import', () => {
  function smallHistory() {
    const org = line.org();
    const sandbox = line.sandbox(org, { spec: { ...BARE_SPEC, labels: { a: 'b' } } });
    const volume = line.volume(org);
    const host = line.volume(org, { volume_kind: 'host', name: null });
    return {
      org,
      sandbox,
      volume,
      lines: [org, sandbox, line.run(sandbox), volume, host, line.accrual(volume), line.event(org)],
      counts: { org: 1, sandbox: 1, run: 1, volume: 2, accrual: 1, event: 1 },
    };
  }
  const NONE = { org: 0, sandbox: 0, run: 0, volume: 0, accrual: 0, event: 0 };

  async function everythingOf(client: Client) {
    return {
      sandboxes: await listAll(client, '/v1/sandboxes'),
      labelled: await listAll(client, '/v1/sandboxes', { labels: '{"a":"b"}' }),
      volumes: (await client.get('/v1/volumes')).body,
      events: await importedEvents(client),
      sandbox: (await client.get('/v1/billing/usage/sandbox', MARCH)).body,
      storage: (await client.get('/v1/billing/usage/storage', MARCH)).body,
    };
  }

  test('may have references before their targets', async () => {
    const { lines, counts } = smallHistory();
    expect(await importAll(service, lines.toReversed())).toEqual({
      lines: 7,
      imported: counts,
      unchanged: NONE,
      bad: [],
      badCount: 0,
      committed: true,
    });
  });

  test('records one event with the counts of new rows', async () => {
    const { org, lines } = smallHistory();
    await importAll(service, lines.slice(0, 3));
    await importAll(service, lines);
    await importAll(service, lines);
    const client = await clientOf(service, org);
    const { body } = await client.get('/v1/events', { event_type: 'history_imported' });
    const none = { sandboxes: 0, runs: 0, volumes: 0, accruals: 0, events: 0 };
    expect(body.data.map(({ actor, payload }: any) => [actor.code, payload])).toEqual(
      expect.arrayContaining([
        ['operator', { ...none, sandboxes: 1, runs: 1 }],
        ['operator', { ...none, volumes: 2, accruals: 1, events: 1 }],
      ]),
    );
    expect(body.data).toHaveLength(2);
  });

  test('recognises events before and after sealing, also with another time', async () => {
    const org = line.org();
    const event = line.event(org);
    const later = { ...event, timestamp: '2026-02-01T00:00:00Z' };
    await importAll(service, [org, event]);
    expect(await importAll(service, [event, later])).toMatchObject({
      imported: NONE,
      unchanged: { event: 2 },
    });
    expect(await sealEvents(service.ctx, new AbortController().signal)).toEqual([]);
    expect(await importAll(service, [event, later])).toMatchObject({
      imported: NONE,
      unchanged: { event: 2 },
    });
  });

  test('with a bad line creates no partition for the months of its events', async () => {
    const org = line.org();
    const events = Array.from({ length: 10_000 }, () =>
      line.event(org, { timestamp: '2011-01-01T00:00:00Z' }),
    );
    const partition = async () =>
      (await service.ctx.pool.query(`select to_regclass('events_2011_01')::text as name`)).rows[0].name;
    const bad = line.event(org, { event_type: 'two\nlines' });
    expect(await importAll(service, [org, ...events, bad])).toMatchObject({
      committed: false,
      bad: [{ line: 10_002, reason: expect.stringContaining('event_type') }],
    });
    expect(await partition()).toBeNull();
    await importAll(service, [org, ...events]);
    expect(await partition()).toBe('events_2011_01');
  });

  test('repeated with the same file changes nothing, and its counts say so', async () => {
    const { org, lines, counts } = smallHistory();
    await importAll(service, lines);
    const client = await clientOf(service, org);
    const before = await everythingOf(client);
    expect(before.labelled).toHaveLength(1);
    expect(await importAll(service, lines)).toMatchObject({ imported: NONE, unchanged: counts, bad: [] });
    expect(await everythingOf(client)).toEqual(before);
  });

  test('counts a line that appears twice in a file once', async () => {
    const { lines, counts } = smallHistory();
    expect(await importAll(service, [...lines, ...lines])).toMatchObject({
      lines: 14,
      imported: counts,
      unchanged: counts,
      bad: [],
    });
  });

  test('keeps existing rows unchanged, whatever a later line says', async () => {
    const { org, sandbox, lines } = smallHistory();
    await importAll(service, lines);
    const client = await clientOf(service, org);
    const before = await everythingOf(client);
    const renamed = { ...sandbox, name: 'renamed', spec: { ...BARE_SPEC, labels: { a: 'b', c: 'd' } } };
    expect(await importAll(service, [renamed, { ...org, slug: 'other-slug' }])).toMatchObject({
      imported: NONE,
      unchanged: { ...NONE, sandbox: 1, org: 1 },
    });
    expect(await everythingOf(client)).toEqual(before);
    expect(await listAll(client, '/v1/sandboxes', { labels: '{"c":"d"}' })).toEqual([]);
  });

  test('loads a file cut in two like the whole file', async () => {
    const { org, lines } = smallHistory();
    await importAll(service, lines.slice(0, 3));
    await importAll(service, lines.slice(3));
    const client = await clientOf(service, org);
    const found = await everythingOf(client);
    expect(found.sandboxes).toHaveLength(1);
    expect(found.volumes).toHaveLength(2);
    expect(found.events).toHaveLength(1);
    expect(found.sandbox.rows).toHaveLength(1);
    expect(found.storage.rows).toHaveLength(1);
  });

  test('can be repeated after other resources took its names', async () => {
    const { org, sandbox, volume, lines, counts } = smallHistory();
    await importAll(service, lines);
    const client = await clientOf(service, org);
    expect((await client.delete(`/v1/sandboxes/${sandbox['id']}`)).status).toBe(200);
    expect((await client.delete(`/v1/volumes/${volume['id']}`)).status).toBe(200);
    const sameName = { name: sandbox['name'], image: { type: 'oci', reference: 'busybox' } };
    expect((await client.post('/v1/sandboxes', sameName)).status).toBe(200);
    expect((await client.post('/v1/volumes', { name: volume['name'] })).status).toBe(200);
    expect(await importAll(service, lines)).toMatchObject({ imported: NONE, unchanged: counts, bad: [] });
    expect((await client.get(`/v1/sandboxes/${sandbox['id']}`)).status).toBe(404);
  });

  test('that clashes with another file is refused, also when both run at once', async () => {
    const { org } = smallHistory();
    await importAll(service, [org]);
    const files = [1, 2].map(() => [line.sandbox(org, { name: 'wanted' }), line.event(org)]);
    const results = await Promise.all(files.map((lines) => importAll(service, lines)));
    const [first, second] = results.toSorted((a, b) => a.badCount - b.badCount);
    expect(first).toMatchObject({ committed: true, imported: { sandbox: 1, event: 1 } });
    expect(second).toMatchObject({
      committed: false,
      bad: [{ line: 1, reason: 'another sandbox of the organization has this name and is not removed' }],
    });
  });

  test('running twice at once loads a file once', async () => {
    const { org, lines, counts } = smallHistory();
    const results = await Promise.all([1, 2, 3].map(() => importAll(service, lines)));
    expect(results.map(({ committed }) => committed)).toEqual([true, true, true]);
    const imported = results.map((result) => result.imported.sandbox);
    expect(imported.filter((count) => count === 0)).toHaveLength(2);
    expect(results[imported.indexOf(1)]!.imported).toEqual(counts);
    expect(await listAll(await clientOf(service, org), '/v1/sandboxes')).toHaveLength(1);
  });
});
