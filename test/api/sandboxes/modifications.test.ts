import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { openSecrets } from '../../../src/secrets/secrets.js';
import { makeClient, type Client } from '../../support/client.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const VALUE = 'the-first-value';
const secret = {
  env_var: 'API_KEY',
  value: VALUE,
  allowed_hosts: [{ type: 'exact', value: 'api.example.com' }],
};
const withSecret = (name: string) => smallRequest(name, { network: { secrets: { entries: [secret] } } });

describe('changes of secrets', () => {
  let service: TestService;
  let client: Client;
  beforeAll(async () => {
    service = await startTestService();
    client = await service.newOrg();
  });
  afterAll(() => service.close());

  const create = async (name: string, query: Record<string, string | boolean> = {}) => {
    const { body, text } = await client.post('/v1/sandboxes', withSecret(name), query);
    expect(body.id, text).toBeDefined();
    return body.id as string;
  };
  const plan = (id: string, body: object) => client.post(`/v1/sandboxes/${id}/modifications/plan`, body);
  const apply = (id: string, body: object) => client.request('PUT', `/v1/sandboxes/${id}`, { body });
  const kinds = (body: any) => body.changes.map(({ change, disposition }: any) => [change, disposition]);

  test('are served by the process with the lease, also before it has the samples of its engine', async () => {
    const id = await create('early', { start: true, wait_for: 'running' });
    // So it is for up to a second after a start.
    const sampling = vi.spyOn(service.ctx.use, 'isSampling', 'get').mockReturnValue(false);
    const { status, text } = await apply(id, { secrets: [{ name: 'API_KEY', value: 'another-value' }] });
    expect(status, text).toBe(200);
    expect((await client.get(`/v1/sandboxes/${id}/metrics`)).status).toBe(200);
    sampling.mockRestore();
  });

  test('a running sandbox takes new values, hosts and removals, which no answer and no event shows', async () => {
    const id = await create('live', { start: true, wait_for: 'running' });
    const planned = await plan(id, {
      secrets: [{ name: 'API_KEY', material: { type: 'provided' }, allowed_hosts: [{ type: 'any' }] }],
    });
    expect(kinds(planned.body), planned.text).toEqual([
      ['hosts_updated', 'live'],
      ['rotated', 'live'],
    ]);
    expect(planned.body).toMatchObject({ applied: false, sandbox: 'live', conflicts: [] });
    const changed = await apply(id, {
      secrets: [{ name: 'API_KEY', value: 'the-second-value', allowed_hosts: [{ type: 'any' }] }],
    });
    expect(changed.body, changed.text).toEqual({ ...planned.body, applied: true });
    const shown = await client.get(`/v1/sandboxes/${id}`);
    expect(shown.body.spec.network.secrets).toMatchObject([
      { env_var: 'API_KEY', placeholder: '$MSB_API_KEY', allowed_hosts: [{ type: 'any' }] },
    ]);
    const removed = await apply(id, { secrets_remove: ['API_KEY'] });
    expect(kinds(removed.body)).toEqual([['removed', 'live']]);
    expect((await client.get(`/v1/sandboxes/${id}`)).body.spec.network.secrets).toEqual([]);
    const events = await client.get('/v1/events', { event_type: 'sandbox_secrets_changed', resource_id: id });
    expect(events.body.data.map(({ payload }: any) => payload.changes)).toEqual([
      [{ name: 'API_KEY', change: 'removed', allow_hosts: ['*'] }],
      [
        { name: 'API_KEY', change: 'hosts_updated', allow_hosts: ['*'] },
        { name: 'API_KEY', change: 'rotated', allow_hosts: ['*'] },
      ],
    ]);
    const { rows } = await service.ctx.pool.query(
      'select count(*)::int as count from sandbox_secrets where sandbox_id = $1',
      [id],
    );
    expect(rows).toEqual([{ count: 0 }]);
    for (const { text } of [planned, changed, shown, events])
      expect(text).not.toMatch(/the-(first|second)-value/);
  });

  // The bodies have the form in which the official crate of 0.7.13 writes them. The crate takes minutes to build, so it
  // does not run here. The crate cannot read a list that is null.
  test('the bodies of the official crate are read, and it can read the plans', async () => {
    const id = await create('crate', { start: true, wait_for: 'running' });
    const whole = {
      name: 'API_KEY',
      placeholder: '$MSB_API_KEY',
      allowed_hosts: [
        { type: 'exact', value: 'api.example.com' },
        { type: 'wildcard', value: '*.example.org' },
      ],
      substitution: { headers: true, header_fields: ['authorization'], query: true, body: false },
      passthrough_hosts: [{ type: 'any' }],
      violation_action: { type: 'block_and_terminate' },
      require_tls_identity: true,
    };
    const value = 'the-second-value';
    const planned = [
      await plan(id, {
        policy: 'no_restart',
        secrets: [{ name: 'API_KEY', material: { type: 'provided' } }],
      }),
      await apply(id, { policy: 'no_restart', secrets: [{ name: 'API_KEY', value }] }),
      await plan(id, { policy: 'no_restart', secrets: [{ ...whole, material: { type: 'absent' } }] }),
      await apply(id, { policy: 'no_restart', secrets: [whole] }),
      await apply(id, { policy: 'no_restart', secrets_remove: ['API_KEY'] }),
    ];
    for (const { status, body, text } of planned) {
      expect(status, text).toBe(200);
      expect(body).toMatchObject({
        sandbox: 'crate',
        status: 'running',
        policy: 'no_restart',
        conflicts: [],
        warnings: [],
      });
      expect(body.changes, text).not.toEqual([]);
      for (const change of body.changes) {
        expect(change).toMatchObject({ kind: 'secret', name: 'API_KEY', disposition: 'live' });
        expect(change.field).toBeTypeOf('string');
        expect(['added', 'rotated', 'removed', 'renamed', 'hosts_updated', 'placeholder_updated']).toContain(
          change.change,
        );
        if ('allow_hosts' in change) expect(change.allow_hosts).toBeInstanceOf(Array);
      }
    }
    expect(planned.map(({ body }) => body.applied)).toEqual([false, true, false, true, true]);
  });

  test('a new secret waits for a sandbox that does not run, and a refused change changes nothing', async () => {
    const id = await create('waits', { start: true, wait_for: 'running' });
    const added = { secrets: [{ name: 'OTHER', value: 'v', allowed_hosts: [{ type: 'any' }] }] };
    const planned = await plan(id, {
      secrets: [{ name: 'OTHER', material: { type: 'provided' }, allowed_hosts: [{ type: 'any' }] }],
    });
    expect(kinds(planned.body)).toEqual([['added', 'requires_restart']]);
    expect(planned.body.conflicts).toMatchObject([{ field: 'secrets[0]' }]);
    const refused = await apply(id, { ...added, secrets_remove: ['API_KEY'] });
    expect([refused.status, refused.body.error?.code], refused.text).toEqual([409, 'modification_refused']);
    const later = await apply(id, { ...added, policy: 'restart' });
    expect([later.status, later.body.error?.code]).toEqual([409, 'modification_unsupported']);
    const unknown = await apply(id, { secrets_remove: ['NONE'] });
    expect(unknown.body.error).toMatchObject({
      code: 'modification_refused',
      details: { field: 'secrets_remove[0]' },
    });
    const stray = await apply(id, { secrets: [{ name: 'API_KEY', methods: ['GET'] }] });
    expect([stray.status, stray.body.error?.details.field]).toEqual([400, 'secrets[0].methods']);
    expect((await client.get(`/v1/sandboxes/${id}`)).body.spec.network.secrets).toMatchObject([
      { env_var: 'API_KEY' },
    ]);
    await client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped' });
    expect(kinds((await apply(id, { ...added, policy: 'next_start' })).body)).toEqual([
      ['added', 'next_start'],
    ]);
    const started = await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
    expect(started.body.spec.network.secrets.map((one: any) => one.env_var)).toEqual(['API_KEY', 'OTHER']);
  });

  test('a change of a sandbox that is starting, has no network, or whose engine has no gateway is refused', async () => {
    const change = { secrets: [{ name: 'API_KEY', value: 'v', allowed_hosts: [{ type: 'any' }] }] };
    const codeOf = async (id: string) => {
      const { status, body } = await apply(id, change);
      return [status, body.error?.code];
    };
    const moving = await create('moving');
    await service.ctx.pool.query("update sandboxes set status = 'starting' where id = $1", [moving]);
    expect(await codeOf(moving)).toEqual([409, 'modification_in_progress']);
    const { body: cut } = await client.post(
      '/v1/sandboxes',
      smallRequest('cut', { network: { enabled: false } }),
    );
    expect(await codeOf(cut.id)).toEqual([409, 'modification_unsupported']);
    const { body: plain } = await client.post('/v1/sandboxes', smallRequest('plain'));
    const { capabilities } = service.runtime;
    const set = (names: Iterable<string>) => Object.assign(service.runtime, { capabilities: new Set(names) });
    set([...capabilities].filter((capability) => capability !== 'secrets'));
    expect(await codeOf(plain.id)).toEqual([409, 'modification_unsupported']);
    set(capabilities);
    expect((await apply(plain.id, change)).status).toBe(200);
    const { rows } = await service.ctx.pool.query(
      "select run_spec -> 'demands' ? 'secrets' as demanded from sandboxes where id = $1",
      [plain.id],
    );
    expect(rows).toEqual([{ demanded: true }]);
  });

  test('the engine gets changes in their order, and a repetition under a key is made once', async () => {
    const id = await create('ordered', { start: true, wait_for: 'running' });
    const got: object[] = [];
    Object.assign(service.runtime, {
      changeSecrets: async ({ secrets }: any) => void got.push(secrets.values),
    });
    const send = async (value: string) =>
      client.request('PUT', `/v1/sandboxes/${id}`, {
        body: { secrets: [{ name: 'API_KEY', value }] },
        headers: { 'idempotency-key': `ordered-${value}` },
      });
    await Promise.all(['a', 'b', 'c'].map(send));
    const eventCount = async () =>
      (await client.get('/v1/events', { event_type: 'sandbox_secrets_changed', resource_id: id })).body.data
        .length;
    expect(await eventCount()).toBe(3);
    const { values } = await openSecrets(service.ctx.pool, service.ctx.keyring, client.org.id, id);
    expect(got.at(-1)).toEqual(values);
    const [first, again] = [await send('d'), await send('d')];
    expect([first.status, again.body]).toEqual([200, first.body]);
    expect(got.at(-1)).toEqual({ API_KEY: 'd' });
    expect(await eventCount()).toBe(4);
  });

  test('a change at another process reaches the one whose gateway the sandbox has', async () => {
    const other = await startTestService({ beside: service, sameEngine: true, worker: false });
    try {
      const id = await create('elsewhere', { start: true, wait_for: 'running' });
      const got: [process: string, values: object][] = [];
      for (const [name, { runtime }] of Object.entries({ service, other })) {
        Object.assign(runtime, {
          changeSecrets: async ({ sandboxId, secrets }: any) => {
            expect(sandboxId).toBe(id);
            got.push([name, secrets.values]);
          },
        });
      }
      const there = makeClient(other.url, client);
      const send = async (body: object) =>
        there.request('PUT', `/v1/sandboxes/${id}`, { body, headers: { 'idempotency-key': 'elsewhere' } });
      const change = { secrets: [{ name: 'API_KEY', value: 'the-second-value' }] };
      const { status, body } = await send(change);
      expect([status, body.applied]).toEqual([200, true]);
      expect(got).toEqual([['service', { API_KEY: 'the-second-value' }]]);
      expect((await send(change)).body).toEqual(body);
    } finally {
      await other.close();
    }
  });
});
