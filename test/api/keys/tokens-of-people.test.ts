import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'vitest';
import { recordEndedKeys } from '../../../src/keys/jobs.js';
import { MOST_TOKENS } from '../../../src/keys/tokens/create.js';
import { changeMember } from '../../../src/members/change.js';
import type { MemberRow } from '../../../src/members/queries.js';
import { removeMember } from '../../../src/members/remove.js';
import { unlinkMember } from '../../../src/members/unlink.js';
import { makeClient, type Client } from '../../support/client.js';
import {
  byOperator,
  linkPerson,
  newMember,
  newToken,
  send,
  signInMember,
  statusOrCut,
} from '../../support/members.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';

let service: TestService;
/** The organization of the token, and another one of the same person. */
let home: Client;
let other: Client;
let atHome: MemberRow;
let there: MemberRow;
let token: { id: string; secret: string };
let by: Client;

beforeAll(async () => {
  service = await startTestService({ worker: false, settings: { keyUseWriteMs: 20 } });
});
afterAll(() => service.close());
beforeEach(async () => {
  [home, other] = [await service.newOrg(), await service.newOrg()];
  atHome = await newMember(service, home.org.id, 'developer');
  there = await newMember(service, other.org.id, 'developer');
  await linkPerson(service, [atHome, there]);
  token = await newToken(service, home.org.id, atHome);
  by = withSecret(token.secret);
});

/** The document has the paths without the prefix. */
const withSecret = (key: string) =>
  makeClient(service.url, { org: home.org, key, keyId: '' }, { documented: false });
const pathIn = ({ org }: Client, path: string) => `/v1/orgs/${org.slug}${path}`;

async function becomes(path: string, wanted: number): Promise<void> {
  await until(
    async () => statusOrCut(by.get(path)),
    (status) => status === wanted,
  );
}

const namesOf = async (path: string) => (await by.get(path)).body.data.map(({ name }: any) => name);

describe('a path that names an organization', () => {
  test('lets a personal token act as its person in each organization, and nowhere else', async () => {
    const made = await by.post(pathIn(other, '/sandboxes'), smallRequest('there'));
    expect([made.status, made.body.org_id]).toEqual([200, other.org.id]);
    const atFirst = await by.post('/v1/sandboxes', smallRequest('at-home'));
    expect(atFirst.body.org_id).toBe(home.org.id);
    expect(await namesOf('/v1/sandboxes')).toEqual(['at-home']);
    expect(await namesOf(pathIn(home, '/sandboxes'))).toEqual(['at-home']);
    // The official clients append the whole path to their address.
    for (const path of ['/sandboxes', '/v1/sandboxes'])
      expect(await namesOf(pathIn(other, path))).toEqual(['there']);
    expect((await by.get(pathIn(other, `/sandboxes/${atFirst.body.id}`))).status).toBe(404);
    expect((await by.get(pathIn(other, ''))).body).toMatchObject({ id: other.org.id, role: 'developer' });
    const { body } = await other.get('/v1/events', { event_type: 'sandbox_created' });
    expect(body.data).toMatchObject([{ actor: { kind: 'user', user_id: there.user_id } }]);
    const elsewhere = await home.get('/v1/events', { event_type: 'sandbox_created' });
    expect(elsewhere.body.data).toHaveLength(1);
  });

  test('has the rights of the role there, and no more than the token got', async () => {
    const change = (member: MemberRow, orgId: string, access: Parameters<typeof changeMember>[3]) =>
      changeMember(service.ctx.pool, orgId, member, access, byOperator());
    await newMember(service, other.org.id, 'owner');
    await change(there, other.org.id, { role: 'owner' });
    expect((await by.get(pathIn(other, '/sandboxes'))).status).toBe(200);
    expect((await by.get(pathIn(other, '/events'))).status).toBe(403);
    await change(there, other.org.id, { role: 'viewer' });
    await until(
      async () => statusOrCut(by.post(pathIn(other, '/sandboxes'), smallRequest(crypto.randomUUID()))),
      (status) => status === 403,
    );
    await change(there, other.org.id, { role: 'finance' });
    await becomes(pathIn(other, '/sandboxes'), 403);
    await change(there, other.org.id, { role: 'developer', labels: { team: 'ml' } });
    await other.post('/v1/sandboxes', { ...smallRequest('ops'), labels: { team: 'ops' } });
    await becomes(pathIn(other, '/sandboxes'), 200);
    expect(await namesOf(pathIn(other, '/sandboxes'))).toEqual([]);
    // The role in the first organization does not count in the other one.
    await change(atHome, home.org.id, { role: 'finance' });
    await becomes('/v1/sandboxes', 403);
    expect((await by.get(pathIn(other, '/sandboxes'))).status).toBe(200);
  });

  test('is the same 404 for an organization of others and for none', async () => {
    const strange = await service.newOrg();
    const lonely = await newToken(service, home.org.id, await newMember(service, home.org.id, 'owner'));
    const none = `/v1/orgs/no-such-organization/sandboxes`;
    const opened = new Map([[by, [home, other]]]);
    const withoutId = ({ status, text }: { status: number; text: string }) => ({ status, text });
    for (const client of [by, withSecret(lonely.secret), home]) {
      const answers = [];
      for (const path of [none, pathIn(strange, '/sandboxes'), pathIn(strange, '/sandboxes')]) {
        answers.push(withoutId(await withSecret(client.key).get(path)));
      }
      expect(answers[0]!.status).toBe(404);
      // The answer lists what the credential itself opens.
      const organizations = (opened.get(client) ?? [home]).map(({ org }) => org.slug).toSorted();
      const message = expect.stringContaining(`it opens ${organizations.join(', ')}`);
      const error = { code: 'org_not_found', message, details: { organizations } };
      expect(JSON.parse(answers[0]!.text)).toMatchObject({ error });
      expect(answers[1]).toEqual(answers[0]);
      expect(answers[2]).toEqual(answers[0]);
    }
    expect((await withSecret(lonely.secret).get(pathIn(other, '/sandboxes'))).status).toBe(404);
    expect((await home.get('/v1/sandboxes')).status).toBe(200);
    expect((await withSecret(home.key).get(pathIn(home, '/sandboxes'))).status).toBe(200);
    expect((await strange.get('/v1/tokens')).body.data).toEqual([]);
    for (const path of [none, pathIn(strange, '/sandboxes')]) {
      for (const secret of ['skp_nothing', `${token.secret.slice(0, -1)}!`]) {
        expect((await withSecret(secret).get(path)).status).toBe(401);
      }
      expect((await by.request('GET', path, { key: null })).status).toBe(401);
    }
  });

  test('is found in every form of a request, and never twice', async () => {
    const statusOf = async (method: string, path: string) => (await by.request(method, path)).status;
    expect(await statusOf('GET', pathIn(other, '/v1/sandboxes?limit=1'))).toBe(200);
    expect(await statusOf('GET', pathIn(other, '?a=1'))).toBe(400);
    for (const path of [
      '/',
      '/v1',
      '/v1/v1/sandboxes',
      '/openapi.json',
      '/console',
      `/orgs/${home.org.slug}/sandboxes`,
    ]) {
      expect([path, await statusOf('GET', pathIn(other, path))]).toEqual([path, 404]);
    }
    expect(await statusOf('GET', '/v1/orgs')).toBe(404);
    expect(await statusOf('GET', '/v1/orgs/')).toBe(404);
    expect(await statusOf('GET', `/v1/orgs/${'x'.repeat(10_000)}/sandboxes`)).toBe(404);
    expect(await statusOf('GET', `/v1/orgs/a%00b/sandboxes`)).toBe(404);
    const refused = await by.request('PUT', pathIn(other, '/sandboxes'));
    expect([refused.status, refused.headers.get('allow')]).toEqual([405, 'GET, HEAD, POST']);
  });

  test('is kept by a request that another process serves', async () => {
    const engine = await startForTest();
    const front = await startForTest({ beside: engine, worker: false });
    const [first, second] = [await engine.newOrg(), await engine.newOrg()];
    const members = [
      await newMember(engine, first.org.id, 'developer'),
      await newMember(engine, second.org.id, 'developer'),
    ] as const;
    await linkPerson(engine, members);
    const { secret } = await newToken(engine, first.org.id, members[0]);
    const { body: sandbox } = await second.post('/v1/sandboxes', smallRequest('far'), {
      start: true,
      wait_for: 'running',
    });
    const client = makeClient(front.url, { org: first.org, key: secret, keyId: '' }, { documented: false });
    // The process with the lease on the engine serves it.
    const path = `/sandboxes/${sandbox.id}/metrics`;
    const answer = await client.get(pathIn(second, path));
    expect([answer.status, answer.text]).toEqual([200, expect.any(String)]);
    expect((await client.get(pathIn(first, path))).status).toBe(404);
  });

  test('names the own organization of a session only', async () => {
    const session = await signInMember(service, home.org.id, atHome);
    expect((await send(session, 'GET', pathIn(home, '/sandboxes'))).status).toBe(200);
    const elsewhere = await send(session, 'GET', pathIn(other, '/sandboxes'));
    expect(elsewhere.status).toBe(404);
    expect(elsewhere.body.error.details).toEqual({ organizations: [home.org.slug] });
  });
});

describe('in the other organization, a personal token', () => {
  const events = async (client: Client, type: string) =>
    (await client.get('/v1/events', { event_type: type })).body.data;

  test('is listed and recorded without a word of the first one', async () => {
    await Promise.all(Array.from({ length: 8 }, () => by.get(pathIn(other, '/sandboxes'))));
    const { body, text } = await other.get('/v1/tokens');
    expect(body.data).toMatchObject([
      { name: 'personal token of another organization', member_id: there.id, email: there.email },
    ]);
    const created = await events(other, 'api_key_created');
    expect(created.filter(({ payload }: any) => payload.member_id === there.id)).toMatchObject([
      { actor: { kind: 'user', user_id: there.user_id }, payload: { api_key_id: body.data[0].id } },
    ]);
    for (const shown of [text, JSON.stringify(created)]) {
      for (const secret of [home.org.id, token.id, token.secret.slice(0, 16), 'test token', atHome.id]) {
        expect(shown).not.toContain(secret);
      }
    }
    expect((await home.get('/v1/tokens')).body.data).toHaveLength(1);
  });

  test('is used with the token itself, which its own organization lists', async () => {
    const [own] = (await home.get('/v1/tokens')).body.data;
    expect([own.id, own.last_used_at]).toEqual([token.id, null]);
    expect((await by.get(pathIn(other, '/sandboxes'))).status).toBe(200);
    const lastUse = async (client: Client) => (await client.get('/v1/tokens')).body.data[0].last_used_at;
    const there = await until(
      () => lastUse(other),
      (at) => at !== null,
    );
    // One statement writes both.
    expect(await lastUse(home)).toBe(there);
    const used = await events(home, 'api_key_first_used');
    expect(used.filter(({ payload }: any) => payload.api_key_id === token.id)).toHaveLength(1);
    expect(JSON.stringify(used)).not.toContain(other.org.id);
  });

  test('ends with the token itself, and the trail says so', async () => {
    expect((await by.get(pathIn(other, '/sandboxes'))).status).toBe(200);
    expect((await home.delete(`/v1/tokens/${token.id}`)).status).toBe(200);
    await becomes(pathIn(other, '/sandboxes'), 401);
    expect((await other.get('/v1/tokens')).body.data).toEqual([]);
    for (const round of [1, 2]) {
      await recordEndedKeys(service.ctx, new AbortController().signal);
      // The job of the service may have claimed the token, and not have committed its event yet.
      await until(
        () => events(other, 'api_key_revoked'),
        (found) => found.length > 0,
      );
      expect([round, await events(other, 'api_key_revoked')]).toEqual([
        round,
        [expect.objectContaining({ payload: expect.objectContaining({ member_id: there.id }) })],
      ]);
    }
    expect(await events(home, 'api_key_revoked')).toHaveLength(1);
  });

  test('ends with the membership there, and a new one opens again', async () => {
    expect((await by.get(pathIn(other, '/sandboxes'))).status).toBe(200);
    await removeMember(service.ctx.pool, other.org.id, there, byOperator());
    await becomes(pathIn(other, '/sandboxes'), 404);
    expect((await by.get('/v1/sandboxes')).status).toBe(200);
    const again = await newMember(service, other.org.id, 'viewer');
    await service.ctx.pool.query(
      'update org_members set person_id = (select person_id from org_members where id = $1) where id = $2',
      [atHome.id, again.id],
    );
    await becomes(pathIn(other, '/sandboxes'), 200);
    await unlinkMember(service.ctx.pool, other.org.id, again.email, byOperator().actor);
    await becomes(pathIn(other, '/sandboxes'), 404);
  });

  test('ends with the membership of the first organization', async () => {
    expect((await by.get(pathIn(other, '/sandboxes'))).status).toBe(200);
    await removeMember(service.ctx.pool, home.org.id, atHome, byOperator());
    await becomes(pathIn(other, '/sandboxes'), 401);
    expect((await other.get('/v1/tokens')).body.data).toEqual([]);
  });

  test('stays revoked where an administrator revoked it, and works elsewhere', async () => {
    expect((await by.get(pathIn(other, '/sandboxes'))).status).toBe(200);
    const [row] = (await other.get('/v1/tokens')).body.data;
    expect((await other.delete(`/v1/tokens/${row.id}`)).status).toBe(200);
    await becomes(pathIn(other, '/sandboxes'), 401);
    await becomes(pathIn(other, '/sandboxes'), 401);
    const nowhere = await by.get('/v1/orgs/no-such-organization/sandboxes');
    expect(nowhere.body.error.details).toEqual({ organizations: [home.org.slug] });
    expect((await by.get('/v1/sandboxes')).status).toBe(200);
    await recordEndedKeys(service.ctx, new AbortController().signal);
    expect(await events(other, 'api_key_revoked')).toHaveLength(1);
    const revokesItself = await by.delete(`/v1/tokens/${token.id}`);
    expect(revokesItself.status).toBe(200);
  });

  test('makes keys there by its rights there, which end no later', async () => {
    const owners = await Promise.all([home, other].map(({ org }) => newMember(service, org.id, 'owner')));
    await linkPerson(service, owners);
    const owner = withSecret((await newToken(service, home.org.id, owners[0]!)).secret);
    const asked = { name: 'by token', scopes: ['sandboxes:read'] };
    const endless = await owner.post(pathIn(other, '/keys'), asked);
    expect([endless.status, endless.body.error.code]).toEqual([403, 'key_exceeds_caller']);
    const expires_at = new Date(Date.now() + 3_600_000).toISOString();
    expect((await owner.post(pathIn(other, '/keys'), { ...asked, expires_at })).status).toBe(200);
    expect((await other.get('/v1/keys')).body.data.map(({ name }: any) => name)).toContain('by token');
    expect((await home.get('/v1/keys')).body.data.map(({ name }: any) => name)).not.toContain('by token');
    const refused = await owner.post(pathIn(other, '/tokens'), { name: 'another' });
    expect([refused.status, refused.body.error.code]).toEqual([403, 'member_required']);
  });

  test('is one of the bounded number of the member there', async () => {
    for (let count = 0; count < MOST_TOKENS; count += 1) await newToken(service, other.org.id, there);
    const { status, body } = await by.get(pathIn(other, '/sandboxes'));
    expect([status, body.error.code]).toEqual([403, 'quota_exceeded']);
  });
});
