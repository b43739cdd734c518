import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { parseInstant } from '../../../src/lib/instant.js';
import { sleep } from '../../../src/lib/sleep.js';
import type { SimulatedRuntime } from '../../../src/engines/simulated/runtime.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { fullRequest, smallRequest } from '../../support/sandbox-requests.js';
import { until, untilStatus } from '../../support/polling.js';

let service: TestService;
let client: Client;
const failing = new Set<string>();

beforeAll(async () => {
  service = await startTestService({
    simulated: {
      failStart: ({ spec }) => (failing.has(spec.image) ? `the image ${spec.image} is broken` : undefined),
    },
    settings: { ephemeralLingerMs: 5_000 },
  });
  client = await service.newOrg();
});
afterAll(() => service.close());

const running = { start: true, wait_for: 'running', wait_timeout: 90 };

describe('create', () => {
  test('returns every field and variant in the form of the contract', async () => {
    await client.post('/v1/volumes', { name: 'data' });
    const made = await client.post('/v1/sandboxes', fullRequest('full', 'data'));
    expect(made.status, made.text).toBe(200);
    const options = { readonly: true, noexec: true, nosuid: true, nodev: true };
    const none = { readonly: false, noexec: false, nosuid: false, nodev: false };
    const { warnings, ...shown } = made.body;
    expect(warnings.map(({ field }: { field: string }) => field)).toEqual(['runtime.log_level']);
    expect(shown).toEqual({
      id: made.body.id,
      org_id: client.org.id,
      name: 'full',
      slug: 'full-slug',
      status: 'created',
      ephemeral: false,
      created_at: made.body.created_at,
      last_failure_message: null,
      started_at: null,
      stopped_at: null,
      status_reason: null,
      stop_reason: null,
      stop_message: null,
      paused_at: null,
      command: null,
      image_digest: null,
      disk_snapshot_id: null,
      runtime: 'simulated',
      source: null,
      spec: {
        image: 'registry.example.com:5000/team/app:1.2@sha256:' + 'a'.repeat(64),
        resources: { vcpus: 2, memory_mib: 1024, disk_size_mib: 4096 },
        runtime: {
          cmd: ['serve', '--all'],
          entrypoint: ['/bin/app'],
          hostname: null,
          user: '1000:1000',
          workdir: '/srv',
          shell: '/bin/sh',
          scripts: { setup: '#!/bin/sh\necho setup' },
          log_level: 'debug',
          metrics_sample_interval_ms: 1000,
          disable_metrics_sample: false,
        },
        env: [
          { key: 'A', value: '2' },
          { key: 'B', value: '' },
        ],
        labels: { team: 'ml', gpu: '' },
        rlimits: [
          { resource: 'Nofile', soft: 1024, hard: 4096 },
          { resource: 'As', soft: 0, hard: Number.MAX_SAFE_INTEGER },
        ],
        lifecycle: { ephemeral: false, idle_timeout_secs: 600, max_duration_secs: 3600 },
        mounts: [
          {
            type: 'Bind',
            guest: '/mnt/bind',
            options,
            stat_virtualization: 'relaxed',
            host_permissions: 'mirror',
            quota_mib: 10,
          },
          {
            type: 'Named',
            name: 'data',
            guest: '/mnt/named',
            options: none,
            stat_virtualization: 'off',
            host_permissions: 'private',
          },
          { type: 'Tmpfs', guest: '/mnt/tmpfs', options, size_mib: 64 },
          { type: 'DiskImage', guest: '/mnt/disk', format: 'Qcow2', options: none, fstype: 'ext4' },
        ],
        network: {
          enabled: true,
          ports: [],
          trust_host_cas: false,
          max_connections: 100,
          policy: fullRequest('full', 'data').network.policy,
          secrets: [
            {
              env_var: 'TOKEN',
              placeholder: '$MSB_TOKEN',
              allowed_hosts: [
                { type: 'exact', value: 'api.example.com' },
                { type: 'wildcard', value: '*.example.com' },
                { type: 'any' },
              ],
              injection: { headers: true, basic_auth: true, query_params: false, body: true },
              on_violation: { type: 'passthrough', hosts: [{ type: 'any' }] },
            },
          ],
        },
      },
    });
    expect((await client.get(`/v1/sandboxes/${made.body.id}`)).body).toEqual(shown);
    expect((await client.get('/v1/sandboxes/by-name/full')).body).toEqual(shown);
    const listed = await client.get('/v1/sandboxes', { name_prefix: 'full' });
    expect(listed.body).toEqual({ data: [shown], has_more: false, next_cursor: null });
  });

  test('applies the defaults of the contract to missing fields', async () => {
    const { body } = await client.post('/v1/sandboxes', smallRequest('small'));
    expect(body.slug).toMatch(/^[a-z]+-[a-z]+-[a-z0-9]{4}$/);
    expect(body.spec).toEqual({
      image: 'busybox',
      resources: { vcpus: 1, memory_mib: 512, disk_size_mib: null },
      runtime: {
        cmd: null,
        entrypoint: null,
        hostname: null,
        user: null,
        workdir: null,
        shell: null,
        scripts: {},
        log_level: null,
        metrics_sample_interval_ms: 1000,
        disable_metrics_sample: false,
      },
      env: [],
      labels: {},
      rlimits: [],
      lifecycle: { ephemeral: false, idle_timeout_secs: null, max_duration_secs: null },
      mounts: [],
      network: {
        enabled: true,
        ports: [],
        trust_host_cas: false,
        max_connections: null,
        policy: null,
        secrets: [],
      },
    });
  });

  test('ignores unknown keys, and does not return them', async () => {
    const { status, text } = await client.post('/v1/sandboxes', {
      ...smallRequest('unknown-keys'),
      surprise: 'canary',
      network: { enabled: true, strict: true },
      runtime: { surprise: 'canary' },
    });
    expect(status).toBe(200);
    expect(text).not.toContain('canary');
  });

  test('refuses a name taken in the organization, or a slug taken anywhere', async () => {
    const other = await service.newOrg();
    await client.post('/v1/sandboxes', smallRequest('taken', { slug: 'taken-slug' }));
    const name = await client.post('/v1/sandboxes', smallRequest('taken'));
    expect([name.status, name.body.error.code, name.body.error.details]).toEqual([
      409,
      'name_already_exists',
      { name: 'taken' },
    ]);
    const slug = await other.post('/v1/sandboxes', smallRequest('taken', { slug: 'taken-slug' }));
    expect([slug.status, slug.body.error.code, slug.body.error.details]).toEqual([
      409,
      'name_already_exists',
      { slug: 'taken-slug' },
    ]);
    expect((await other.post('/v1/sandboxes', smallRequest('taken'))).status).toBe(200);
  });

  test('makes one sandbox from fifty concurrent requests for one name', async () => {
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => client.post('/v1/sandboxes', smallRequest('race'))),
    );
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 409)).toHaveLength(49);
  });

  test('requires a named volume to exist in the organization', async () => {
    const other = await service.newOrg();
    await other.post('/v1/volumes', { name: 'theirs' });
    const mounts = [{ type: 'named', name: 'theirs', guest: '/data' }];
    const { status, body } = await client.post('/v1/sandboxes', smallRequest('mounts', { mounts }));
    expect([status, body.error.code, body.error.details]).toEqual([
      404,
      'volume_not_found',
      { field: 'mounts[0].name' },
    ]);
    expect((await client.get('/v1/sandboxes/by-name/mounts')).status).toBe(404);
  });
});

describe('the lifecycle', () => {
  test('keeps the id across start, stop and start, and records each run from the runtime', async () => {
    const made = await client.post('/v1/sandboxes', smallRequest('life'));
    const { id } = made.body;
    const started = await client.post(
      `/v1/sandboxes/${id}/start`,
      {},
      { wait_for: 'running', wait_timeout: 90 },
    );
    expect([started.status, started.body.status, started.body.status_reason]).toEqual([200, 'running', null]);
    const held = (await service.runtime.list()).find(({ sandboxId }) => sandboxId === id);
    expect(parseInstant(started.body.started_at)).toBe(held!.startedAt);
    expect(started.body.stopped_at).toBeNull();

    expect((await client.post(`/v1/sandboxes/${id}/stop`, {})).body.status).toBe('stopping');
    const stopped = await untilStatus(client, id, 'stopped');
    const exited = (await service.runtime.list()).find(({ sandboxId }) => sandboxId === id);
    expect(parseInstant(stopped.body.started_at)).toBe(exited!.startedAt);
    expect(parseInstant(stopped.body.stopped_at)).toBe(exited!.finishedAt);

    const again = await client.post('/v1/sandboxes/by-name/life/start', {}, { wait_for: 'running' });
    expect(again.body).toMatchObject({ id, status: 'running', stopped_at: null });
    expect(again.body.started_at > stopped.body.stopped_at).toBe(true);
    const { rows } = await service.ctx.pool.query(
      'select started_at, stopped_at, end_reason from runs where sandbox_id = $1 order by started_at',
      [id],
    );
    expect(rows).toEqual([
      { started_at: exited!.startedAt, stopped_at: exited!.finishedAt, end_reason: 'requested' },
      { started_at: parseInstant(again.body.started_at), stopped_at: null, end_reason: null },
    ]);
  });

  test('ends in stopped after the main process exits, in failed after a crash', async () => {
    const simulated = service.runtime as SimulatedRuntime;
    const ends = await client.post('/v1/sandboxes', smallRequest('ends'), running);
    simulated.exit(ends.body.id, 0);
    expect((await untilStatus(client, ends.body.id, 'stopped')).body.last_failure_message).toBeNull();
    const crashes = await client.post('/v1/sandboxes', smallRequest('crashes'), running);
    simulated.exit(crashes.body.id, 3);
    const failed = await untilStatus(client, crashes.body.id, 'failed');
    expect(failed.body.last_failure_message).toBe('the main process ended with code 3');
    const again = await client.post(`/v1/sandboxes/${crashes.body.id}/start`, {}, { wait_for: 'running' });
    expect(again.body).toMatchObject({ status: 'running', last_failure_message: null });
  });

  test('ends a wait with failed and the reason when the runtime refuses the start', async () => {
    failing.add('broken');
    const { status, body } = await client.post(
      '/v1/sandboxes',
      { name: 'broken', image: { type: 'oci', reference: 'broken' } },
      running,
    );
    expect([status, body.status, body.last_failure_message]).toEqual([
      200,
      'failed',
      'the image broken is broken',
    ]);
    expect(body.started_at).toBeNull();
    const usage = await client.get('/v1/billing/usage/sandbox');
    expect(usage.body.sandboxes.map(({ id }: { id: string }) => id)).not.toContain(body.id);
  });

  test("allows a delete in every status, which frees the name, the id and the runtime's resources", async () => {
    failing.add('broken');
    const make = async (name: string, query = {}, image = 'busybox') =>
      (await client.post('/v1/sandboxes', { name, image: { type: 'oci', reference: image } }, query)).body;
    const stopped = await make('del-stopped', running);
    await client.post(`/v1/sandboxes/${stopped.id}/stop`, {});
    await untilStatus(client, stopped.id, 'stopped');
    const all = [
      stopped,
      await make('del-created'),
      await make('del-starting', { start: true }),
      await make('del-running', running),
      await make('del-failed', running, 'broken'),
    ];
    for (const { id, name } of all) {
      const { status, body } = await client.delete(`/v1/sandboxes/${id}`);
      expect([status, body]).toEqual([200, { message: `the sandbox "${name}" is deleted` }]);
      expect((await client.get(`/v1/sandboxes/${id}`)).status).toBe(404);
      expect((await client.get(`/v1/sandboxes/by-name/${name}`)).status).toBe(404);
      expect((await client.delete(`/v1/sandboxes/${id}`)).status).toBe(404);
      const successor = await make(name);
      expect(successor.id).not.toBe(id);
    }
    const ids = all.map(({ id }) => id);
    await until(
      () => service.runtime.list(),
      (held) => held.every(({ sandboxId }) => !ids.includes(sandboxId)),
    );
    const { rows } = await until(
      () =>
        service.ctx.pool.query('select * from runs where sandbox_id = any ($1) and end_reason is null', [
          ids,
        ]),
      ({ rows: open }) => open.length === 0,
    );
    expect(rows).toEqual([]);
  });

  test('keeps an ended ephemeral sandbox readable for a while, and its events and usage forever', async () => {
    const made = await client.post(
      '/v1/sandboxes',
      smallRequest('brief', { lifecycle: { ephemeral: true } }),
      running,
    );
    expect(made.body.ephemeral).toBe(true);
    await client.post(`/v1/sandboxes/${made.body.id}/stop`, {});
    const stopped = await untilStatus(client, made.body.id, 'stopped');
    await untilStatus(client, made.body.id, null);
    expect(Date.now() - Date.parse(stopped.body.stopped_at)).toBeGreaterThan(4_900);
    const events = await client.get('/v1/events', { resource_id: made.body.id });
    expect(events.body.data.map(({ event_type }: { event_type: string }) => event_type)).toEqual([
      'sandbox_removed',
      'sandbox_stopped',
      'sandbox_stop_requested',
      'sandbox_started',
      'sandbox_start_requested',
      'sandbox_created',
    ]);
    const usage = await client.get('/v1/billing/usage/sandbox');
    expect(usage.body.sandboxes).toContainEqual({ id: made.body.id, name: 'brief', slug: made.body.slug });
  });

  test('ends a run after max_duration_secs, and the audit trail has the reason', async () => {
    const made = await client.post(
      '/v1/sandboxes',
      smallRequest('bounded', { lifecycle: { max_duration_secs: 1 } }),
      running,
    );
    const stopped = await untilStatus(client, made.body.id, 'stopped');
    expect(Date.parse(stopped.body.stopped_at) - Date.parse(stopped.body.started_at)).toBeGreaterThanOrEqual(
      1_000,
    );
    const events = await client.get('/v1/events', {
      resource_id: made.body.id,
      event_type: 'sandbox_stop_requested',
    });
    expect(events.body.data[0].payload.reason).toBe('max_duration_exceeded');
  });
});

describe('the reconciler', () => {
  test('handles all other sandboxes when one has an unreadable specification', async () => {
    const victim = await service.newOrg();
    const poison = await victim.post(
      '/v1/sandboxes',
      smallRequest('poison', { lifecycle: { max_duration_secs: Number.MAX_SAFE_INTEGER } }),
      running,
    );
    expect(poison.body.status).toBe('running');
    // No request can store a specification that cannot be parsed.
    await service.ctx.pool.query(`update sandboxes set run_spec = '{"maxDurationSecs": 0.5}' where id = $1`, [
      poison.body.id,
    ]);
    const healthy = await client.post('/v1/sandboxes', smallRequest('healthy'), running);
    expect(healthy.body.status).toBe('running');
    await client.post(`/v1/sandboxes/${healthy.body.id}/stop`, {});
    await untilStatus(client, healthy.body.id, 'stopped');
    await service.ctx.pool.query("update sandboxes set run_spec = '{}' where id = $1", [poison.body.id]);
    await victim.delete(`/v1/sandboxes/${poison.body.id}`);
  });

  test('records every run of the runtime with its times, while stops and starts race', async () => {
    const meeting = await startTestService({ simulated: { startMs: 20 } });
    try {
      const mine = await meeting.newOrg();
      const ids = await Promise.all(
        Array.from({ length: 60 }, async (_, index) => {
          const { body } = await mine.post('/v1/sandboxes', smallRequest(`meet-${index}`), { start: true });
          await sleep(index % 40);
          await mine.post(`/v1/sandboxes/${body.id}/stop`, {});
          return body.id as string;
        }),
      );
      for (const id of ids) await untilStatus(mine, id, 'stopped', 20_000);
      const held = new Map((await meeting.runtime.list()).map((holding) => [holding.runId, holding]));
      const { rows } = await meeting.ctx.pool.query(
        'select id, started_at, stopped_at, end_reason from runs',
      );
      expect(rows).toHaveLength(60);
      for (const { id, started_at, stopped_at, end_reason } of rows) {
        const record = held.get(id);
        expect([id, started_at, stopped_at]).toEqual([
          id,
          record?.startedAt ?? null,
          record?.finishedAt ?? null,
        ]);
        expect(end_reason).toBe(started_at === null ? 'cancelled' : 'requested');
      }
      const events = await mine.get('/v1/events', { event_type: 'sandbox_started', limit: 100 });
      expect(events.body.data).toHaveLength(rows.filter(({ started_at }) => started_at !== null).length);
    } finally {
      await meeting.close();
    }
  });
});

describe('waits', () => {
  test('end at the end of their time-out with the current state of the sandbox', async () => {
    const slow = await startTestService({ simulated: { startMs: 60_000 } });
    try {
      const mine = await slow.newOrg();
      const begun = Date.now();
      const { status, body } = await mine.post('/v1/sandboxes', smallRequest('slow'), {
        ...running,
        wait_timeout: 1,
      });
      expect([status, body.status]).toEqual([200, 'starting']);
      expect(Date.now() - begun).toBeGreaterThanOrEqual(1_000);
      const reasonOf = async () => (await mine.get(`/v1/sandboxes/${body.id}`)).body.status_reason;
      await until(reasonOf, (reason) => reason === null);
      // A later wait joins the start in progress. A stop or a delete ends every wait for it.
      const subscribe = vi.spyOn(slow.ctx.changes, 'subscribe');
      const joined = mine.post(
        `/v1/sandboxes/${body.id}/start`,
        {},
        { wait_for: 'running', wait_timeout: 30 },
      );
      await until(
        () => Promise.resolve(subscribe.mock.calls.some(([id]) => id === body.id)),
        (waiting) => waiting,
      );
      expect((await mine.post(`/v1/sandboxes/${body.id}/stop`, {})).body.status).toBe('stopping');
      expect(['stopping', 'stopped']).toContain((await joined).body.status);
      expect((await untilStatus(mine, body.id, 'stopped')).body.started_at).toBeNull();
    } finally {
      await slow.close();
    }
  });

  test('fill at most half of all slots for an organization, and further ones are refused before any change', async () => {
    const busy = await startTestService({ worker: false, settings: { maxWaiters: 4 } });
    try {
      const orgs = [await busy.newOrg(), await busy.newOrg()];
      const wait = (by: Client, name: string, more = {}) =>
        by.post('/v1/sandboxes', smallRequest(name), { start: true, wait_for: 'running', ...more });
      const waiting = [];
      for (const mine of orgs) {
        waiting.push(wait(mine, 'w1'), wait(mine, 'w2'));
        const list = async () => (await mine.get('/v1/sandboxes')).body.data;
        await until(list, ({ length }) => length === 2);
        const refused = await wait(mine, 'w3');
        expect([refused.status, refused.body.error.code]).toEqual([429, 'rate_limited']);
        expect(refused.headers.get('retry-after')).toBe('1');
        expect(await list()).toHaveLength(2);
      }
      for (const mine of orgs) {
        for (const name of ['w1', 'w2']) await mine.post(`/v1/sandboxes/by-name/${name}/stop`, {});
      }
      expect((await Promise.all(waiting)).map(({ status }) => status)).toEqual([200, 200, 200, 200]);
      // The slots are free again.
      expect((await wait(orgs[0]!, 'w3', { wait_timeout: 0 })).status).toBe(200);
    } finally {
      await busy.close();
    }
  });

  test('are refused without a start, as is a time-out without a wait', async () => {
    const noStart = await client.post('/v1/sandboxes', smallRequest('never'), { wait_for: 'running' });
    expect([noStart.status, noStart.body.error.details]).toEqual([400, { parameter: 'wait_for' }]);
    const noWait = await client.post('/v1/sandboxes', smallRequest('never'), {
      start: true,
      wait_timeout: 5,
    });
    expect([noWait.status, noWait.body.error.details]).toEqual([400, { parameter: 'wait_timeout' }]);
    expect((await client.get('/v1/sandboxes/by-name/never')).status).toBe(404);
  });
});

describe('an unknown sandbox', () => {
  test.each(['GET', 'DELETE'])('answers 404 sandbox_not_found to %s', async (method) => {
    for (const path of [
      `/v1/sandboxes/${uuidv7()}`,
      '/v1/sandboxes/by-name/nobody',
      '/v1/sandboxes/by-name/%F0%9F%92%A9',
    ]) {
      const { status, body } = await client.request(method, path);
      expect([status, body]).toEqual([
        404,
        { error: { code: 'sandbox_not_found', message: 'resource not found', details: null } },
      ]);
    }
  });
});
