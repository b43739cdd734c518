import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { createKey } from '../../../src/keys/create.js';
import type { Channel } from '../../../src/db/changes.js';
import { revokeKey } from '../../../src/keys/revoke.js';
import { addMillis, now } from '../../../src/lib/instant.js';
import { changePreviewSettings } from '../../../src/orgs/preview-settings.js';
import { deleteEndedPreviews } from '../../../src/previews/grants/jobs.js';
import { OpenGrants, type OpenGrant } from '../../../src/previews/grants/open-grants.js';
import { findGrants } from '../../../src/previews/grants/queries.js';
import { tokenHash } from '../../../src/previews/grants/token.js';
import type { Answer } from '../../support/answer.js';
import { makeClient, type Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { askPreview, OPEN_HOSTS, serveGranted } from '../../support/preview-service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const hosts = OPEN_HOSTS();
// Nothing listens at first, and URLs need a port.
hosts.listensAt(9_999);
let service: TestService;
let beside: TestService;
let client: Client;
let sandbox: { id: string; name: string };

beforeAll(async () => {
  service = await startTestService({ worker: false, previews: hosts });
  beside = await startTestService({ worker: false, beside: service, previews: hosts });
  client = await service.newOrg();
  sandbox = await newSandbox('first');
});
afterAll(async () => {
  await beside.close();
  await service.close();
});

async function newSandbox(name: string, labels = {}): Promise<{ id: string; name: string }> {
  const { body } = await client.post('/v1/sandboxes', { ...smallRequest(name), labels });
  return body;
}

async function open(request: object = { port: 3000 }, { id } = sandbox): Promise<Answer['body']> {
  const { status, body, text } = await client.post(`/v1/sandboxes/${id}/previews`, request);
  if (status !== 200) throw new Error(text);
  return body;
}

/** A preview of another process than the one that the client talks to. */
async function serve(): Promise<
  (preview: Answer['body'], headers?: Record<string, string>) => Promise<number>
> {
  const { port, close } = await serveGranted(beside, hosts, (request, response) => {
    if (request.url === '/endless') response.write('begun');
    else response.end('the page');
  });
  await until(
    async () => Promise.resolve(beside.ctx.changes.live && service.ctx.changes.live),
    (live) => live,
  );
  onTestFinished(close);
  served = port;
  return async ({ origin, token }, headers = bearer(token)) =>
    (await askPreview(port, `${origin}/`, { headers })).status;
}
let served = 0;

const bearer = (token: string): Record<string, string> => ({ authorization: `Bearer ${token}` });
const NAVIGATION = { 'sec-fetch-mode': 'navigate', accept: 'text/html' };

/** A request that stays open, and the time of its end. */
async function holdOpen({
  origin,
  token,
}: Answer['body']): Promise<{ ended: Promise<number>; cut: () => void }> {
  const { host } = new URL(origin);
  const request = httpRequest({
    host: '127.0.0.1',
    port: served,
    path: '/endless',
    headers: { host, ...bearer(token) },
  });
  request.on('error', () => undefined).end();
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  expect(answer.statusCode).toBe(200);
  answer.on('error', () => undefined).resume();
  const ended = new Promise<number>((end) => answer.once('close', () => end(performance.now())));
  return { ended, cut: () => answer.destroy() };
}

describe('a preview', () => {
  test('is made with a link and a token that are shown once', async () => {
    const preview = await open({ port: 3000, path: '/docs?a=1#top', label: 'review', ttl_secs: 60 });
    expect(preview).toMatchObject({
      port: 3000,
      label: 'review',
      public: false,
      status: 'open',
      host: 'outer',
    });
    const url = new URL(preview.url);
    expect(url.origin).toBe(preview.origin);
    expect(url.hash).toBe(`#sandkeep-grant=${preview.token}`);
    expect(url.searchParams.get('to')).toBe('/docs?a=1#top');
    const { token, url: _, ...shown } = preview;
    const path = `/v1/sandboxes/${sandbox.id}/previews/${preview.id}`;
    expect((await client.get(path)).body).toEqual(shown);
    const { rows } = await service.ctx.pool.query('select p::text as row from previews p');
    expect(JSON.stringify(rows)).not.toContain(token);
  });

  test.each(['//evil.example/', '/\\evil.example', 'https://evil.example', 'docs', '/a\nb'])(
    'is refused with the path %j, which leads elsewhere',
    async (path) => {
      const { status, body } = await client.post(`/v1/sandboxes/${sandbox.id}/previews`, { port: 80, path });
      expect([status, body.error.details]).toEqual([400, { field: 'path' }]);
    },
  );

  test('is made once under an idempotency key, and the repeated answer has no token', async () => {
    const ask = () =>
      client.request('POST', `/v1/sandboxes/${sandbox.id}/previews`, {
        body: { port: 4000 },
        headers: { 'idempotency-key': 'once' },
      });
    const [first, second] = [await ask(), await ask()];
    expect(first.body.token).toMatch(/^skp_/);
    expect(second.body).toEqual({ ...first.body, token: null, url: null });
    const { rows } = await service.ctx.pool.query('select answer::text from idempotency_keys');
    expect(JSON.stringify(rows)).not.toContain(first.body.token);
  });

  test('is recorded when it is made and when it is revoked, once', async () => {
    const preview = await open({ port: 5000, label: 'audited' });
    const path = `/v1/sandboxes/${sandbox.id}/previews/${preview.id}`;
    const revoke = (headers: Record<string, string>) => client.request('DELETE', path, { headers });
    for (const headers of [{ 'idempotency-key': 'end' }, { 'idempotency-key': 'end' }, {}]) {
      expect((await revoke(headers)).body).toEqual({ message: 'the preview of port 5000 is revoked' });
    }
    const { rows } = await service.ctx.pool.query(
      `select event_type as type, payload from events where payload ->> 'preview_id' = $1 order by occurred_at, id`,
      [preview.id],
    );
    const payload = {
      preview_id: preview.id,
      sandbox_id: sandbox.id,
      name: 'first',
      port: 5000,
      label: 'audited',
      public: false,
    };
    expect(rows).toEqual([
      { type: 'sandbox_preview_created', payload: { ...payload, expires_at: preview.expires_at } },
      { type: 'sandbox_preview_revoked', payload },
    ]);
  });

  test('is listed while it is open, page by page, and found for a week after its end', async () => {
    const { id } = await newSandbox('listed');
    const made = [];
    for (const port of [1, 2, 3, 4]) made.push(await open({ port }, { id, name: 'listed' }));
    const base = `/v1/sandboxes/${id}/previews`;
    await client.delete(`${base}/${made[1].id}`);
    const first = (await client.get(base, { limit: 2 })).body;
    expect([first.data.map(({ port }: any) => port), first.has_more]).toEqual([[1, 3], true]);
    const rest = (await client.get(base, { limit: 2, cursor: first.next_cursor })).body;
    expect([rest.data.map(({ port }: any) => port), rest.has_more]).toEqual([[4], false]);
    expect((await client.get(`${base}/${made[1].id}`)).body.status).toBe('revoked');
    const later = { ...service.ctx, now: () => addMillis(now(), 8 * 24 * 3_600_000) };
    await deleteEndedPreviews(later, new AbortController().signal);
    expect((await client.get(`${base}/${made[1].id}`)).body.error.code).toBe('preview_not_found');
  });

  test('is the hundred-and-first of a sandbox and refused', async () => {
    const { id } = await newSandbox('crowded');
    const { id: preview } = await open({ port: 1 }, { id, name: 'crowded' });
    await service.ctx.pool.query(
      `insert into previews select (jsonb_populate_record(p, jsonb_build_object('id', gen_random_uuid(),
         'grant_hash', sha256(n::text::bytea), 'cookie_hash', sha256((n + 1000)::text::bytea)))).*
       from previews p, generate_series(1, 99) n where id = $1`,
      [preview],
    );
    const refused = await client.post(`/v1/sandboxes/${id}/previews`, { port: 2 });
    expect([refused.status, refused.body.error.code]).toEqual([403, 'quota_exceeded']);
    await client.delete(`/v1/sandboxes/${id}/previews/${preview}`);
    expect((await client.post(`/v1/sandboxes/${id}/previews`, { port: 2 })).status).toBe(200);
  });
});

describe('access', () => {
  test('needs the token of this sandbox and port, and every refusal is the same', async () => {
    const ask = await serve();
    const preview = await open();
    expect(await ask(preview)).toBe(200);
    expect(await ask(preview, { 'x-sandkeep-preview': preview.token })).toBe(200);
    const other = await newSandbox('other');
    const unknown = hosts.originOf({ port: 3000, sandboxId: '01a0a8a1-5b6e-7d21-9c1b-6a1f0e4c2d55' });
    const elsewhere = [
      [preview.origin, {}],
      [preview.origin, bearer(client.key)],
      [preview.origin, bearer((await open({ port: 3001 })).token)],
      [hosts.originOf({ port: 3001, sandboxId: sandbox.id }), bearer(preview.token)],
      [hosts.originOf({ port: 3000, sandboxId: other.id }), bearer(preview.token)],
      [unknown, bearer(preview.token)],
      [`${preview.origin}/?x-sandkeep-preview=${preview.token}&token=${preview.token}`, {}],
    ] as const;
    const answers = await Promise.all(
      elsewhere.map(([url, headers]) => askPreview(served, url, { headers })),
    );
    for (const answer of answers) {
      expect([answer.status, answer.headers['www-authenticate']]).toEqual([401, 'Bearer']);
      expect(answer.text).toBe(answers[0]!.text);
    }
  });

  test('by a cookie follows the grant of a link, which only the own origin can ask for', async () => {
    await serve();
    const preview = await open({ port: 3000, ttl_secs: 600 });
    const { origin, token } = preview;
    const url = `${origin}/.well-known/sandkeep/grant`;
    const json = { 'content-type': 'application/json' };
    const post = (headers: Record<string, string>, body: string) =>
      askPreview(served, url, { method: 'POST', headers, body });
    const body = JSON.stringify({ token });
    for (const headers of [json, { ...json, origin: 'null' }, { ...json, origin: 'http://evil.localhost' }]) {
      expect((await post(headers, body)).status).toBe(400);
    }
    expect((await post({ 'content-type': 'text/plain', origin }, body)).status).toBe(415);
    expect((await post({ ...json, origin }, `{"token":"${'x'.repeat(2_000)}"}`)).status).toBe(413);
    expect((await post({ ...json, origin }, JSON.stringify({ token: client.key }))).status).toBe(401);
    const granted = await post({ ...json, origin }, body);
    expect(granted.status).toBe(200);
    const [cookie] = granted.headers['set-cookie']!;
    expect(cookie).toMatch(
      /^__Host-sandkeep-preview=[\w-]{43}; Max-Age=(59\d|600); Path=\/; Secure; HttpOnly; SameSite=None; Partitioned$/,
    );
    expect(cookie).not.toContain(token);
    const value = cookie!.split(';')[0]!;
    const at = async (to: string) =>
      (await askPreview(served, to, { headers: { cookie: `a=b; ${value}` } })).status;
    expect(await at(`${origin}/`)).toBe(200);
    expect(await at(hosts.originOf({ port: 3001, sandboxId: sandbox.id }))).toBe(401);
  });

  test('gets a page in browsers, and the form of API errors in programs', async () => {
    await serve();
    const { origin } = await open();
    const page = await askPreview(served, `${origin}/docs`, { headers: NAVIGATION });
    expect([page.status, page.headers['content-type']]).toEqual([401, 'text/html; charset=utf-8']);
    expect(page.headers['content-security-policy']).toMatch(/^default-src 'none'; script-src 'sha256-/);
    const data = await askPreview(served, `${origin}/docs`);
    expect(JSON.parse(data.text).error.code).toBe('preview_access_required');
    expect((await askPreview(served, `${origin}/.well-known/sandkeep/other`)).status).toBe(404);
  });
});

describe('an open request in another process ends within a second', () => {
  const ENDS: Record<string, (made: { preview: any; sandbox: any; keyId: string }) => Promise<unknown>> = {
    'when the preview is revoked': ({ preview, sandbox: { id } }) =>
      client.delete(`/v1/sandboxes/${id}/previews/${preview.id}`),
    'when its key is revoked': ({ keyId }) => revokeKey(service.ctx.pool, keyId, operator('test')),
    'when the sandbox is deleted': ({ sandbox: { id } }) => client.delete(`/v1/sandboxes/${id}`),
    'when the sandbox loses a label of its key': ({ sandbox: { id } }) =>
      client.patch(`/v1/sandboxes/${id}`, { labels: { team: 'b' } }),
    'when its time is over': ({ preview }) =>
      service.ctx.pool.query(`update previews set expires_at = now() where id = $1`, [preview.id]),
  };
  test.each(Object.entries(ENDS))('%s', async (name, end) => {
    const ask = await serve();
    const made = await newSandbox(`ends ${name}`.replaceAll(' ', '-').slice(0, 60), { team: 'a' });
    const access = { ...FULL_ACCESS, scopes: ['sandboxes:exec' as const], labels: { team: 'a' } };
    const { id: keyId, key } = await createKey(
      service.ctx.pool,
      client.org.id,
      'limited',
      operator('test'),
      access,
    );
    const limited = makeClient(service.url, { ...client, key, keyId });
    const { body: preview } = await limited.post(`/v1/sandboxes/${made.id}/previews`, { port: 3000 });
    const kept = await open();
    const [held, untouched] = [await holdOpen(preview), await holdOpen(kept)];
    let isUntouched = true;
    void untouched.ended.then(() => (isUntouched = false));
    const began = performance.now();
    await end({ preview, sandbox: made, keyId });
    // A second, and the slack of a machine on which other tests run.
    expect((await held.ended) - began).toBeLessThan(20_000);
    expect(await ask(preview)).toBe(401);
    expect([await ask(kept), isUntouched]).toEqual([200, true]);
    untouched.cut();
  });
});

/** The grants of a process, with the number of its lookups. `hold`: the answers of the database wait for it. */
function countedGrants() {
  const { pool, now: clock, log } = service.ctx;
  const state = { lookups: 0, hold: Promise.resolve() };
  const listeners: Partial<Record<Channel, (changed: string) => void>> = {};
  const counting = Object.create(pool) as typeof pool;
  const query = pool.query.bind(pool) as (...args: unknown[]) => Promise<unknown>;
  counting.query = (async (...args: unknown[]) => {
    state.lookups += 1;
    const found = await query(...args);
    await state.hold;
    return found;
  }) as typeof pool.query;
  const grants = new OpenGrants({
    pool: counting,
    now: clock,
    log,
    changes: {
      live: true,
      subscribe(_id, listener, channel = 'sandbox') {
        listeners[channel] = listener;
        return () => undefined;
      },
      close: () => Promise.resolve(),
    },
  });
  onTestFinished(() => grants.close());
  return { grants, state, changed: (channel: Channel, id: string) => listeners[channel]!(id) };
}

test('many visitors of a grant cost one lookup, and an ended grant leaves no entry', async () => {
  const { token, id } = await open();
  const { grants, state, changed } = countedGrants();
  const look = async () => grants.get({ sandboxId: sandbox.id, port: 3000, origin: '' }, tokenHash(token));
  const found = await Promise.all(Array.from({ length: 50 }, look));
  expect([new Set(found).size, state.lookups, grants['byCredential'].size]).toEqual([1, 1, 1]);
  await client.delete(`/v1/sandboxes/${sandbox.id}/previews/${id}`);
  changed('preview', sandbox.id);
  expect(await look()).toBe('ended');
  expect([grants['byCredential'].size, grants['grants'].size, grants['lookups'].size]).toEqual([0, 0, 0]);
});

test('a grant is looked up again after a change of its own sandbox, key and organization alone', async () => {
  const { token } = await open();
  const { grants, state, changed } = countedGrants();
  const look = async () => grants.get({ sandboxId: sandbox.id, port: 3000, origin: '' }, tokenHash(token));
  const found = (await look()) as OpenGrant;
  const own: [Channel, string][] = [
    ['sandbox', sandbox.id],
    ['preview', sandbox.id],
    ['preview', client.org.id],
    ['key', found.row.key_id],
    ['key', ''],
  ];
  for (const [channel] of own) {
    const before = state.lookups;
    // A grant is looked up again also when it is old, on a slow machine.
    found.checkedAt = performance.now();
    changed(channel, randomUUID());
    await look();
    expect([channel, state.lookups - before]).toEqual([channel, 0]);
  }
  for (const [channel, id] of own) {
    const before = state.lookups;
    changed(channel, id);
    await look();
    expect([channel, id, state.lookups - before]).toEqual([channel, id, 1]);
    // The answer may be of the time before a change that arrives meanwhile.
    changed(channel, id);
    let release = () => {};
    state.hold = new Promise((resolve) => (release = resolve));
    const looked = look();
    await until(
      () => Promise.resolve(state.lookups),
      (lookups) => lookups === before + 2,
    );
    changed(channel, id);
    release();
    await looked;
    await look();
    expect([channel, id, state.lookups - before]).toEqual([channel, id, 3]);
  }
});

describe('the organization decides', () => {
  test('whether previews are public; they end when it no longer allows them', async () => {
    const ask = await serve();
    const path = `/v1/sandboxes/${sandbox.id}/previews`;
    const place = { sandboxId: sandbox.id, port: 8000 };
    const refused = await client.post(path, { port: 8000, public: true });
    expect([refused.status, refused.body.error.code]).toEqual([403, 'public_previews_off']);
    const set = (on: boolean) =>
      changePreviewSettings(service.ctx.pool, client.org.id, { public: on }, operator('test'));
    await set(true);
    const preview = await open({ port: 8000, public: true, path: '/a' });
    expect([preview.token, preview.url]).toEqual([null, `${preview.origin}/a`]);
    expect(await ask(preview, {})).toBe(200);
    // The one that ends last counts.
    const short = await open({ port: 8000, public: true, host: 'sandbox', ttl_secs: 60 });
    const [row] = await findGrants(service.ctx.pool, [{ ...place, hash: undefined }], now());
    expect([row?.id, preview.id === short.id]).toEqual([preview.id, false]);
    await set(false);
    await until(
      () => ask(preview, {}),
      (status) => status === 401,
    );
  });

  test('whether browsers see a notice once before the first page', async () => {
    await serve();
    const { origin, token } = await open();
    const on = (notice: boolean) =>
      changePreviewSettings(service.ctx.pool, client.org.id, { notice }, operator('test'));
    await on(true);
    const get = (headers: Record<string, string>) =>
      askPreview(served, `${origin}/`, { headers: { ...bearer(token), ...headers } });
    await until(
      () => get(NAVIGATION),
      ({ status }) => status === 403,
    );
    expect((await get(NAVIGATION)).text).toContain('“first”');
    expect((await get({})).status).toBe(200);
    const read = await askPreview(served, `${origin}/.well-known/sandkeep/notice`, {
      method: 'POST',
      headers: { ...bearer(token), origin },
    });
    const cookie = read.headers['set-cookie']![0]!.split(';')[0]!;
    expect((await get({ ...NAVIGATION, cookie })).status).toBe(200);
    await on(false);
  });
});
