import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { findForRun } from '../../../src/registry-credentials/find-for-run.js';
import { forgetCredentials, resealCredentials } from '../../../src/registry-credentials/reseal.js';
import { operator } from '../../../src/audit/events/actor.js';
import { addKey, dropOldKeys } from '../../../src/secrets/key-file.js';
import { registryReach } from '../../../src/settings.js';
import type { Client } from '../../support/client.js';
import { serveRegistry, type PrivateRegistry, type RemoteImage } from '../../support/private-registry.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';
import { join } from 'node:path';

const PATH = '/v1/registry-credentials';
const PASSWORD = 'canary-of-the-stored-password';
const LOGIN = { username: 'robot', password: PASSWORD };

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({
    settings: { registryReach: registryReach({ registryAllow: [], registryHttp: ['127.0.0.1'] }) },
  });
});
afterAll(() => service.close());
beforeEach(async () => {
  client = await service.newOrg();
});

const store = async (pattern: string, more = {}) =>
  (await client.post(PATH, { pattern, ...LOGIN, ...more })).body;
const find = (image: string, registryAccess?: object, snapshotId?: string) =>
  findForRun(service.ctx.pool, service.ctx.keyring, client.org.id, {
    image,
    ...(snapshotId === undefined ? {} : { snapshotId }),
    ...(registryAccess ? { registryAccess: registryAccess as never } : {}),
  });
const eventsOf = async (id: string) =>
  (await client.get('/v1/events', { resource_id: id, limit: 20 })).body.data;

describe('registry credentials', () => {
  test('are stored, listed, changed and deleted, and no answer or event has their password', async () => {
    const texts: string[] = [];
    const made = await client.post(PATH, { pattern: 'GHCR.io/acme', ...LOGIN, description: 'agents' });
    texts.push(made.text);
    expect(made.body).toMatchObject({ pattern: 'ghcr.io/acme', username: 'robot', has_password: true });
    const { id } = made.body;
    const changed = await client.patch(`${PATH}/${id}`, { username: 'other', password: `${PASSWORD}-2` });
    texts.push(changed.text);
    expect(changed.body).toMatchObject({ id, username: 'other', description: 'agents' });
    const [one, all] = [await client.get(`${PATH}/${id}`), await client.get(PATH)];
    texts.push(one.text, all.text);
    expect([one.body, all.body.data]).toEqual([changed.body, [changed.body]]);
    expect(await find('ghcr.io/acme/app:1')).toEqual({ username: 'other', password: `${PASSWORD}-2` });
    expect((await client.delete(`${PATH}/${id}`)).status).toBe(200);
    expect((await client.get(`${PATH}/${id}`)).status).toBe(404);
    const events = await eventsOf(id);
    expect(events.map(({ event_type }: any) => event_type)).toEqual([
      'registry_credential_deleted',
      'registry_credential_updated',
      'registry_credential_created',
    ]);
    expect(events[1].payload).toMatchObject({ before: { username: 'robot' }, password_changed: true });
    const { rows } = await service.ctx.pool.query('select events::text as text from events');
    expect([...texts, JSON.stringify(events), JSON.stringify(rows)].join('\n')).not.toContain(PASSWORD);
  });

  test('have one pattern each in an organization, also when two requests store it at once', async () => {
    const answers = await Promise.all(
      Array.from({ length: 4 }, () => client.post(PATH, { pattern: 'ghcr.io', ...LOGIN })),
    );
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 409, 409, 409]);
    const other = await service.newOrg();
    expect((await other.post(PATH, { pattern: 'ghcr.io', ...LOGIN })).status).toBe(200);
  });

  test('are refused by field when they make no sense', async () => {
    for (const [field, body] of [
      ['pattern', { pattern: 'acme', ...LOGIN }],
      ['username', { pattern: 'ghcr.io', ...LOGIN, username: 'a:b' }],
      ['password', { pattern: 'ghcr.io', ...LOGIN, password: '' }],
    ] as const) {
      const answer = await client.post(PATH, body);
      expect([answer.status, answer.body.error.message], answer.text).toEqual([
        400,
        expect.stringContaining(field),
      ]);
    }
  });

  test('are used by the longest pattern that matches the image, and not by a sandbox that wants none', async () => {
    await store('ghcr.io', { username: 'all' });
    await store('ghcr.io/acme', { username: 'acme' });
    const exact = await store('ghcr.io/acme/app', { username: 'app' });
    expect((await find('ghcr.io/acme/app:1'))?.username).toBe('app');
    expect((await find('ghcr.io/acme/app2:1'))?.username).toBe('acme');
    expect((await find('ghcr.io/acme2/app:1'))?.username).toBe('all');
    expect(await find('quay.io/acme/app:1')).toBeNull();
    expect(await find('ghcr.io/acme/app:1', { mode: 'anonymous' })).toBeNull();
    const named = { mode: 'specific', credential_id: exact.id };
    expect((await find('ghcr.io/acme/app:1', named))?.username).toBe('app');
    await client.delete(`${PATH}/${exact.id}`);
    await expect(find('ghcr.io/acme/app:1', named)).rejects.toThrow('was deleted');
  });

  test('are sent to no registry that their pattern does not name', async () => {
    const { id } = await store('ghcr.io/acme', { username: 'acme' });
    const registry = { mode: 'specific', credential_id: id };
    const create = async (reference: string) =>
      client.post('/v1/sandboxes', smallRequest('sent', { image: { type: 'oci', reference }, registry }));
    for (const reference of ['evil.example/acme/app', 'ghcr.io/acme2/app', 'acme/app', 'python']) {
      const { status, body } = await create(reference);
      expect([status, body.error], reference).toEqual([
        400,
        {
          code: 'invalid_sandbox_config',
          message: `registry.credential_id: the credential is for images of ghcr.io/acme, and the image is ${reference}`,
          details: { field: 'registry.credential_id' },
        },
      ]);
      await expect(find(reference, registry), reference).rejects.toThrow('is for images of ghcr.io/acme');
    }
    // The disk is there already. Nothing is pulled, so nothing is sent or refused.
    expect(await find('evil.example/acme/app', registry, id)).toBeNull();
    const taken = await create('ghcr.io/acme/app:1');
    expect(taken.status, taken.text).toBe(200);
  });

  test('stay invisible and useless to another organization', async () => {
    const { id } = await store('ghcr.io');
    const stranger = await service.newOrg();
    for (const [method, path] of [
      ['GET', `${PATH}/${id}`],
      ['PATCH', `${PATH}/${id}`],
      ['DELETE', `${PATH}/${id}`],
      ['POST', `${PATH}/${id}/test`],
    ] as const) {
      const body = method === 'GET' || method === 'DELETE' ? {} : { body: {} };
      expect((await stranger.request(method, path, body)).status, `${method} ${path}`).toBe(404);
    }
    const registry = { mode: 'specific', credential_id: id };
    const refused = await stranger.post('/v1/sandboxes', smallRequest('named', { registry }));
    expect([refused.status, refused.body.error.details]).toEqual([400, { field: 'registry.credential_id' }]);
    const image = { type: 'oci', reference: 'ghcr.io/acme/app' };
    const taken = await client.post('/v1/sandboxes', smallRequest('named', { image, registry }));
    expect(taken.status, taken.text).toBe(200);
  });

  test('are sealed again under a new key, and say so when the keys are lost', async () => {
    const { id } = await store('ghcr.io');
    const file = join(service.directory, 'secret-keys');
    const { ctx } = service;
    addKey(file);
    expect(await resealCredentials(ctx.pool, ctx.keyring, operator('test'))).toBeGreaterThan(0);
    dropOldKeys(file);
    expect((await find('ghcr.io/a/b'))?.password).toBe(PASSWORD);
    expect(await forgetCredentials(ctx.pool, operator('test'))).toBeGreaterThan(0);
    expect((await client.get(`${PATH}/${id}`)).body.has_password).toBe(false);
    await expect(find('ghcr.io/a/b')).rejects.toThrow('set it again');
    expect((await client.post(`${PATH}/${id}/test`, {})).body.accepted).toBe(false);
    await client.patch(`${PATH}/${id}`, { password: PASSWORD });
    expect((await find('ghcr.io/a/b'))?.password).toBe(PASSWORD);
  });
});

describe.each(['basic', 'bearer'] as const)('a test of a registry credential by %s', (scheme) => {
  let registry: PrivateRegistry;
  beforeEach(async () => {
    const image = { manifest: Buffer.from('{}'), digest: 'sha256:0', config: '', blobs: new Map() };
    // The answer of a registry to `GET /v2/`, once it has accepted the login.
    image.blobs.set('', Buffer.from('{}'));
    registry = await serveRegistry(image satisfies RemoteImage, { credentials: LOGIN, scheme });
  });
  afterEach(() => registry.close());

  const tried = async (credential: { id: string }, body = {}) =>
    (await client.post(`${PATH}/${credential.id}/test`, body)).body;

  test('tells whether an image can be pulled, and leaves an event', async () => {
    const right = await store(`${registry.host}/team`);
    const reference = `${registry.host}/team/app:1`;
    expect(await tried(right, { reference })).toEqual({
      accepted: true,
      message: expect.stringContaining('lets it be pulled'),
    });
    expect((await tried(right, { reference: `${registry.host}/team/app:2` })).accepted).toBe(false);
    const [event] = await eventsOf(right.id);
    expect([event.event_type, event.payload.accepted]).toEqual(['registry_credential_tested', false]);
    await client.patch(`${PATH}/${right.id}`, { password: 'wrong' });
    expect(await tried(right, { reference })).toEqual({
      accepted: false,
      message: expect.stringContaining('credentials'),
    });
    const foreign = await client.post(`${PATH}/${right.id}/test`, { reference: 'quay.io/team/app' });
    expect([foreign.status, foreign.body.error.details]).toEqual([400, { field: 'reference' }]);
  });

  test('logs in where no image is named', async () => {
    const credential = await store(registry.host);
    expect(await tried(credential)).toEqual({
      accepted: true,
      message: expect.stringContaining('accepted the login'),
    });
    await client.patch(`${PATH}/${credential.id}`, { password: 'wrong' });
    expect((await tried(credential)).accepted).toBe(false);
  });
});

test('a test of a registry credential reaches no address that the operator does not allow', async () => {
  const registry = await serveRegistry({
    manifest: Buffer.from(''),
    digest: '',
    config: '',
    blobs: new Map(),
  });
  const guarded = await startTestService();
  try {
    const org = await guarded.newOrg();
    const { body } = await org.post(PATH, { pattern: registry.host, ...LOGIN });
    const answer = await org.post(`${PATH}/${body.id}/test`, {});
    expect(answer.body).toEqual({ accepted: false, message: expect.stringContaining('--registry-allow') });
    expect(registry.requests).toEqual([]);
  } finally {
    await guarded.close();
    await registry.close();
  }
});
