import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
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

  test('a running sandbox takes new values, hosts and removals, which no answer and no event shows', async () => {
    const id = await create('live', { start: true, wait_for: 'running' });
    const planned = await plan(id, {
      secrets: [{ name: 'API_KEY', material: { type: 'provided' }, allowed_hosts: [{ type: 'any' }] }],
    });
    expect(kinds(planned.body), planned.text).toEqual([
      ['hosts updated', 'live'],
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
        { name: 'API_KEY', change: 'hosts updated', allow_hosts: ['*'] },
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

  test('a new secret waits for a sandbox that does not run, and a refused change changes nothing', async () => {
    const id = await create('waits', { start: true, wait_for: 'running' });
    const added = { secrets: [{ name: 'OTHER', value: 'v', allowed_hosts: [{ type: 'any' }] }] };
    const planned = await plan(id, {
      secrets: [{ name: 'OTHER', material: { type: 'provided' }, allowed_hosts: [{ type: 'any' }] }],
    });
    expect(kinds(planned.body)).toEqual([['added', 'requires restart']]);
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
      ['added', 'next start'],
    ]);
    const started = await client.post(`/v1/sandboxes/${id}/start`, {}, { wait_for: 'running' });
    expect(started.body.spec.network.secrets.map((one: any) => one.env_var)).toEqual(['API_KEY', 'OTHER']);
  });
});
