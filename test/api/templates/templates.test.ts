import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import type { Capture } from '../../../src/engine/runtime.js';
import { createKey } from '../../../src/keys/create.js';
import { BuildLog, MOST_LOG_BYTES } from '../../../src/templates/build/log.js';
import { MOST_UNFINISHED } from '../../../src/templates/create.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';
import { archiveOf, build, endedBuild, logOf, requestBuild } from '../../support/templates.js';

const SIMPLE = 'FROM busybox\nENV A=1\n';
const running = { start: true, wait_for: 'running' } as const;

let service: TestService;
/** Runs in each capture. */
let during: ((capture: Capture) => Promise<void>) | undefined;
beforeAll(async () => {
  const simulated = { onCapture: async (one: Capture) => during?.(one) };
  service = await startTestService({ simulated, settings: { stopGraceMs: 0, volumePurgeAfterMs: 0 } });
});
afterAll(() => service.close());

async function typesOf(client: Client, resource: string): Promise<string[]> {
  const { body } = await client.get('/v1/events', { resource_id: resource, limit: 100 });
  return body.data.map(({ event_type }: { event_type: string }) => event_type).toReversed();
}

async function snapshotsOf(client: Client): Promise<{ id: string; status: string }[]> {
  const { rows } = await service.ctx.pool.query<{ id: string; status: string }>(
    'select id, status from snapshots where org_id = $1 and removed_at is null order by created_at',
    [client.org.id],
  );
  return rows;
}

/** Holds each capture of the organization until it is released. */
function holdCaptures(client: Client): () => void {
  let release: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  during = async ({ orgId }) => (orgId === client.org.id ? held : undefined);
  return () => {
    during = undefined;
    release();
  };
}

async function untilBuilding(client: Client, id: string): Promise<string> {
  const { sandbox_id } = await until(
    async () => (await client.get(`/v1/templates/${id}`)).body,
    ({ status, sandbox_id: sandbox }) => status === 'building' && sandbox !== null,
  );
  return sandbox_id;
}

describe('a template', () => {
  test('is built, shown, listed, and the base of sandboxes with its values', async () => {
    const client = await service.newOrg();
    const dockerfile = `FROM busybox\nENV A=1 B=two\nUSER 1000\nCMD ["serve", "all"]\nLABEL team=ml\nEXPOSE 80\n`;
    const built = await build(client, 'agent:1', dockerfile);
    expect(built).toMatchObject({
      name: 'agent',
      tag: '1',
      status: 'succeeded',
      steps: 0,
      error: null,
      sandbox_id: null,
      size_bytes: 1024 * 1024,
      dockerfile,
      config: {
        env: [
          { key: 'A', value: '1' },
          { key: 'B', value: 'two' },
        ],
        workdir: null,
        user: '1000',
        cmd: ['serve', 'all'],
        entrypoint: null,
        labels: { team: 'ml' },
        exposed: ['80'],
      },
    });
    expect((await client.get('/v1/templates', { name: 'agent', tag: '1' })).body.data).toEqual([built]);
    expect((await client.get('/v1/templates', { status: ['failed', 'queued'] })).body.data).toEqual([]);
    expect(await typesOf(client, built['id'])).toEqual(['template_build_requested', 'template_built']);
    expect((await logOf(client, built['id'])).map(({ text }) => text).join('')).toBe(
      'FROM busybox\nthe template is built\n',
    );

    const request = { ...smallRequest('made'), image: { type: 'template', name: 'agent', tag: '1' } };
    const { body, text } = await client.post(
      '/v1/sandboxes',
      { ...request, env: [{ key: 'B', value: 'own' }] },
      running,
    );
    expect(body.status, text).toBe('running');
    expect(body.spec).toMatchObject({
      image: 'busybox',
      env: [
        { key: 'A', value: '1' },
        { key: 'B', value: 'own' },
      ],
      runtime: { user: '1000', cmd: ['serve', 'all'] },
    });
    const missing = await client.post('/v1/sandboxes', {
      ...request,
      image: { type: 'template', name: 'agent' },
    });
    expect([missing.status, missing.body.error.code]).toEqual([404, 'template_not_found']);
    // Its snapshot is none of the caller's.
    expect((await client.get('/v1/snapshots')).body.data).toEqual([]);
    expect((await client.get('/v1/snapshot-operations')).body.data).toEqual([]);
    const hidden = { ...request, image: { type: 'disk_snapshot', id: body.disk_snapshot_id } };
    expect((await client.post('/v1/sandboxes', hidden)).status).toBe(404);
    expect((await client.delete(`/v1/snapshots/${body.disk_snapshot_id}`)).status).toBe(404);
    expect((await client.get('/v1/quotas')).body.snapshots).toBe(1);
    const { data } = (await client.get('/v1/sandboxes')).body;
    expect(data.map(({ name }: { name: string }) => name)).toEqual(['made']);
  });

  test('loses its tag to the next build, and its data when no sandbox needs it', async () => {
    const client = await service.newOrg();
    const first = await build(client, 'agent', SIMPLE);
    const second = await build(client, 'agent:latest', `${SIMPLE}CMD ["x"]\n`);
    const { data } = (await client.get('/v1/templates')).body;
    expect(data.map(({ id }: { id: string }) => id)).toEqual([second['id']]);
    expect((await client.get(`/v1/templates/${first['id']}`)).status).toBe(404);
    await until(
      async () => snapshotsOf(client),
      (rows) => rows.length === 1,
      30_000,
    );
    const { body } = await client.delete(`/v1/templates/${second['id']}`);
    expect(body.message).toBe('the template "agent:latest" is deleted');
    expect(await typesOf(client, second['id'])).toEqual([
      'template_build_requested',
      'template_built',
      'template_deleted',
    ]);
    await until(
      async () => (await client.get('/v1/quotas')).body.snapshots,
      (count) => count === 0,
      30_000,
    );
  });

  test('is a base of other templates, with its values', async () => {
    const client = await service.newOrg();
    await build(client, 'base:1', 'FROM busybox\nENV A=1\nENTRYPOINT ["/e"]\n');
    const built = await build(client, 'top:1', 'FROM template:base:1\nENV B=$A\nCMD ["c"]\n');
    expect(built['status'], JSON.stringify(built['error'])).toBe('succeeded');
    expect(built['config']).toMatchObject({
      env: [
        { key: 'A', value: '1' },
        { key: 'B', value: '1' },
      ],
      entrypoint: ['/e'],
      cmd: ['c'],
    });
    const refused = await requestBuild(client, 'top:2', 'FROM template:none:1\n');
    expect([refused.status, refused.body.error.code]).toEqual([404, 'template_not_found']);
  });

  test('takes a context, plain or packed, another Dockerfile, arguments, or commands', async () => {
    const client = await service.newOrg();
    const entries = { 'deploy/Containerfile': 'ARG V=1\nFROM busybox:$V\nARG V\nENV V=$V\n', 'a.txt': 'a' };
    const query = { dockerfile: 'deploy/Containerfile', build_args: '{"V":"7"}', labels: '{"team":"ml"}' };
    const built = await build(client, 'context:1', entries, query);
    expect([built['status'], built['config']?.env, built['labels']], JSON.stringify(built['error'])).toEqual([
      'succeeded',
      [{ key: 'V', value: '7' }],
      { team: 'ml' },
    ]);
    expect(built['context_digest']).toMatch(/^sha256:[0-9a-f]{64}$/);
    const packed = gzipSync(await archiveOf({ Dockerfile: SIMPLE }));
    const answer = await fetch(`${client.url}/v1/templates?tag=packed:1`, {
      method: 'POST',
      headers: { authorization: `Bearer ${client.key}`, 'content-type': 'application/gzip' },
      body: packed,
    });
    const { id } = (await answer.json()) as { id: string };
    expect(await endedBuild(client, id)).toMatchObject({ status: 'succeeded', error: null });
    const commands = await requestBuild(
      client,
      'commands:1',
      '{"from":"busybox","commands":["echo \\"a b\\""]}',
    );
    expect(commands.body.dockerfile).toBe('FROM busybox\nRUN ["/bin/sh","-c","echo \\"a b\\""]\n');
    // Nothing runs in a simulated sandbox.
    expect(await endedBuild(client, commands.body.id)).toMatchObject({
      status: 'failed',
      error: { code: 'not_supported', line: 2 },
    });
    // No context stays after its build.
    const { rows } = await service.ctx.pool.query('select 1 from template_contexts where org_id = $1', [
      client.org.id,
    ]);
    expect(rows).toEqual([]);
  });
});

describe('a request is refused', () => {
  let client: Client;
  beforeAll(async () => {
    client = await service.newOrg();
  });

  test.each<[string, string | Record<string, any>, Record<string, string | number>, string]>([
    [
      'an unsupported instruction',
      'FROM a\n\nVOLUME /x',
      {},
      'line 3 of the Dockerfile: VOLUME is not supported',
    ],
    ['no image', 'FROM A:B:C', {}, 'line 1 of the Dockerfile: "A:B:C" is no image'],
    ['no template', 'FROM template:a:b:c', {}, 'is no image, such as python:3.12, no template'],
    ['scratch', 'FROM scratch', {}, 'scratch is not supported'],
    [
      'no stage to copy from',
      'FROM a\nCOPY --from=1 /a /',
      {},
      'line 2 of the Dockerfile: COPY: there is no stage 1',
    ],
    ['a copy of its own stage', 'FROM a AS b\nCOPY --from=b /a /', {}, '"b" is this stage or a later one'],
    ['no such target', 'FROM a AS b\nFROM c', { target: 'd' }, 'no such stage; its stages are b, 1'],
    ['a target without a name', 'FROM a', { target: '' }, 'target'],
    ['a target with a long name', 'FROM a', { target: 'a'.repeat(129) }, 'target'],
    ['an unknown argument', 'FROM a', { build_args: '{"V":"1"}' }, 'the Dockerfile has no "ARG V"'],
    ['a bad tag', 'FROM a', { tag: 'a:b:c' }, 'tag must be a name and a tag'],
    ['a bad label', 'FROM a', { labels: '{"sandbox.x":"y"}' }, 'reserved'],
    ['no body', '', {}, 'the body is empty'],
    ['an archive without a Dockerfile', { a: 'b' }, {}, 'the context has no Dockerfile "Dockerfile"'],
    ['a path out of the context', { Dockerfile: SIMPLE, '../a': 'b' }, {}, 'leads out of it'],
    [
      'a device',
      { Dockerfile: SIMPLE, dev: { type: 'character-device', size: 0 } },
      {},
      '"dev" of the context is no file, directory or link',
    ],
    [
      'a size that no engine has',
      'FROM a',
      { sandbox: '{"resources":{"vcpus":100000}}' },
      'vCPUs for a sandbox at most',
    ],
    ['an unknown field', 'FROM a', { sandbox: '{"mounts":[]}' }, 'there is no field "mounts"'],
    [
      'a password',
      'FROM a',
      { sandbox: '{"registry":{"mode":"inline","username":"u","password":"p"}}' },
      'a build keeps no passwords',
    ],
    [
      'a credential of another organization',
      'FROM ghcr.io/acme/a AS b\nFROM a\nCOPY --from=b /a /',
      {
        sandbox: '{"registry":{"mode":"specific","credential_id":"0b5b6b5e-0000-4000-8000-000000000001"}}',
      },
      'the organization has no registry credential',
    ],
    ['commands that are none', '{"from":"a","commands":[1]}', {}, 'commands[0]'],
    ['a time that is too long', 'FROM a', { timeout_secs: 7_201 }, 'timeout_secs'],
  ])('with %s', async (_, body, query, message) => {
    const answer = await requestBuild(client, 'refused:1', body, query);
    expect([answer.status, answer.body.error.message]).toEqual([400, expect.stringContaining(message)]);
    const { rows } = await service.ctx.pool.query('select 1 from template_contexts where org_id = $1', [
      client.org.id,
    ]);
    expect(rows).toEqual([]);
  });

  test('with a credential that is for another registry than a stage', async () => {
    const stored = { pattern: 'ghcr.io/acme', username: 'u', password: 'p' };
    const { body: credential } = await client.post('/v1/registry-credentials', stored);
    const sandbox = JSON.stringify({ registry: { mode: 'specific', credential_id: credential.id } });
    const dockerfile = 'FROM evil.example/a AS b\nFROM ghcr.io/acme/a\nCOPY --from=b /a /';
    const { status, body } = await requestBuild(client, 'refused:1', dockerfile, { sandbox });
    expect([status, body.error.message]).toEqual([
      400,
      'registry.credential_id: the credential is for images of ghcr.io/acme, and the image is evil.example/a',
    ]);
    expect((await client.delete(`/v1/registry-credentials/${credential.id}`)).status).toBe(200);
  });

  test('by the quotas, and by the number of builds that wait', async () => {
    const org = await service.newOrg();
    await service.ctx.pool.query('update quotas set max_snapshots = 0 where org_id = $1', [org.org.id]);
    const full = await requestBuild(org, 'full:1', SIMPLE);
    expect([full.status, full.body.error.details.quota]).toEqual([403, 'max_snapshots']);
    await service.ctx.pool.query('update quotas set max_snapshots = null where org_id = $1', [org.org.id]);
    const release = holdCaptures(org);
    const ids: string[] = [];
    for (let count = 0; count < MOST_UNFINISHED; count += 1) {
      ids.push((await requestBuild(org, `waits:${count}`, SIMPLE)).body.id);
    }
    const more = await requestBuild(org, 'waits:more', SIMPLE);
    expect([more.status, more.body.error.details]).toEqual([
      403,
      { limit: MOST_UNFINISHED, used: MOST_UNFINISHED },
    ]);
    // Another organization has its turn.
    const other = await service.newOrg();
    expect((await build(other, 'other:1', SIMPLE))['status']).toBe('succeeded');
    for (const id of ids.slice(1)) await org.delete(`/v1/templates/${id}`);
    release();
    expect((await endedBuild(org, ids[0]!))['status']).toBe('succeeded');
  });
});

describe('a build', () => {
  test('is cancelled, and leaves no sandbox and no snapshot', async () => {
    const client = await service.newOrg();
    const release = holdCaptures(client);
    const { body } = await requestBuild(client, 'cancelled:1', SIMPLE);
    const sandbox = await untilBuilding(client, body.id);
    const { body: answer } = await client.delete(`/v1/templates/${body.id}`);
    expect(answer.message).toBe('the build of "cancelled:1" is cancelled');
    expect((await client.get(`/v1/templates/${body.id}`)).body).toMatchObject({
      status: 'cancelled',
      error: { code: 'cancelled' },
    });
    await until(
      async () => (await client.get(`/v1/sandboxes/${sandbox}`)).status,
      (status) => status === 404,
      30_000,
    );
    release();
    await until(
      async () => [await snapshotsOf(client), (await client.get('/v1/quotas')).body.snapshots] as const,
      ([rows, count]) => rows.every(({ status }) => status === 'failed') && count === 0,
      30_000,
    );
    expect((await client.delete(`/v1/templates/${body.id}`)).status).toBe(200);
    expect((await client.get(`/v1/templates/${body.id}`)).status).toBe(404);
  });

  test('fails when its sandbox is deleted, or when its time is over', async () => {
    const client = await service.newOrg();
    let release = holdCaptures(client);
    const { body: first } = await requestBuild(client, 'gone:1', SIMPLE);
    const sandbox = await untilBuilding(client, first.id);
    await until(
      async () => snapshotsOf(client),
      (rows) => rows.length > 0,
    );
    await client.delete(`/v1/sandboxes/${sandbox}`);
    release();
    const gone = await endedBuild(client, first.id);
    expect([gone['status'], gone['error'].code]).toEqual(['failed', 'sandbox_changed']);
    release = holdCaptures(client);
    const { body: second } = await requestBuild(client, 'late:1', SIMPLE, { timeout_secs: 1 });
    const late = await endedBuild(client, second.id);
    expect([late['status'], late['error'].code]).toEqual(['failed', 'timed_out']);
    release();
    expect(await typesOf(client, second.id)).toEqual(['template_build_requested', 'template_build_failed']);
  });

  test('needs room in the quota for what it adds to its base, and no more', async () => {
    const client = await service.newOrg();
    await build(client, 'base:1', SIMPLE);
    const { pool } = service.ctx;
    await pool.query('update snapshots set size_bytes = $2 where org_id = $1', [client.org.id, 1024 ** 3]);
    await pool.query('update quotas set max_snapshot_gib = 1 where org_id = $1', [client.org.id]);
    expect(await build(client, 'top:1', 'FROM template:base:1\n')).toMatchObject({
      status: 'succeeded',
      size_bytes: 1024 * 1024,
    });
    expect((await build(client, 'alone:1', SIMPLE))['error']).toMatchObject({ code: 'quota_exceeded' });
  });

  test('that another process left ends as failed, and its sandbox goes', async () => {
    const client = await service.newOrg();
    const { body: left } = await client.post('/v1/sandboxes', smallRequest('left'), running);
    const built = await build(client, 'left:1', SIMPLE);
    await service.ctx.pool.query(
      `update templates set status = 'building', completed_at = null, sandbox_id = $2 where id = $1`,
      [built['id'], left.id],
    );
    const ended = await endedBuild(client, built['id']);
    expect([ended['status'], ended['error'].code]).toEqual(['failed', 'interrupted']);
    await until(
      async () => (await client.get(`/v1/sandboxes/${left.id}`)).status,
      (status) => status === 404,
      30_000,
    );
  });
});

test('a key that is narrowed to labels sees the templates with them, and gives them to its own', async () => {
  const client = await service.newOrg();
  const access = { ...FULL_ACCESS, scopes: ['sandboxes:write'] as const, labels: { team: 'ml' } };
  const { key } = await createKey(service.ctx.pool, client.org.id, 'narrowed', operator('test'), access);
  const ask = async (method: string, path: string, options: object = {}) =>
    client.request(method, path, { ...options, key });
  const other = await build(client, 'other:1', SIMPLE);
  const { body } = await ask('POST', '/v1/templates', { body: SIMPLE, query: { tag: 'own:1' } });
  expect(body.labels).toEqual({ team: 'ml' });
  await endedBuild(client, body.id);
  const { data } = (await ask('GET', '/v1/templates')).body;
  expect(data.map(({ id }: { id: string }) => id)).toEqual([body.id]);
  for (const path of [`/v1/templates/${other['id']}`, `/v1/templates/${other['id']}/log`]) {
    expect((await ask('GET', path)).status).toBe(404);
  }
  expect((await ask('DELETE', `/v1/templates/${other['id']}`)).status).toBe(404);
  const sandbox = { ...smallRequest('x'), image: { type: 'template', name: 'other', tag: '1' } };
  expect((await ask('POST', '/v1/sandboxes', { body: sandbox })).status).toBe(404);
  expect(
    (await ask('POST', '/v1/templates', { body: 'FROM template:other:1', query: { tag: 'x:1' } })).status,
  ).toBe(404);
  const copy = { body: 'FROM a\nCOPY --from=template:other:1 /a /', query: { tag: 'x:1' } };
  expect((await ask('POST', '/v1/templates', copy)).status).toBe(404);
  const stranger = await service.newOrg();
  expect((await requestBuild(stranger, 'x:1', copy.body)).status).toBe(404);
});

test('a key that is narrowed to labels replaces no template without them, and begins with none', async () => {
  const client = await service.newOrg();
  const access = { ...FULL_ACCESS, scopes: ['sandboxes:write'] as const, labels: { team: 'ml' } };
  const { key } = await createKey(service.ctx.pool, client.org.id, 'narrowed', operator('test'), access);
  const ask = async (tag: string, body: string) =>
    client.request('POST', '/v1/templates', { body, query: { tag }, key });
  const taken = await build(client, 'taken:1', SIMPLE);
  const refused = await ask('taken:1', SIMPLE);
  expect([refused.status, refused.body.error.code, refused.body.error.details.labels]).toEqual([
    403,
    'label_not_allowed',
    { team: 'ml' },
  ]);
  expect((await client.get(`/v1/templates/${taken['id']}`)).status).toBe(200);

  // Meanwhile the organization gives the tag to a template of its own, and the base loses its labels.
  await build(client, 'base:1', SIMPLE, { labels: '{"team":"ml"}' });
  const release = holdCaptures(client);
  const late = (await ask('late:1', SIMPLE)).body.id;
  await untilBuilding(client, late);
  const top = (await ask('top:1', 'FROM template:base:1\n')).body.id;
  await service.ctx.pool.query(`update templates set name = 'late' where org_id = $1 and name = 'taken'`, [
    client.org.id,
  ]);
  await service.ctx.pool.query(`update templates set labels = '{}' where org_id = $1 and name = 'base'`, [
    client.org.id,
  ]);
  release();
  expect((await endedBuild(client, late))['error']).toMatchObject({ code: 'label_not_allowed' });
  expect((await endedBuild(client, top))['error']).toMatchObject({ code: 'template_not_found' });
  expect((await client.get(`/v1/templates/${taken['id']}`)).body.name).toBe('late');
});

test('a request with an idempotency key is executed once', async () => {
  const client = await service.newOrg();
  const send = async (body: string) =>
    client.request('POST', '/v1/templates', {
      body,
      query: { tag: 'once:1' },
      headers: { 'idempotency-key': 'once' },
    });
  const context = await archiveOf({ Dockerfile: SIMPLE });
  const first = await send(context);
  expect((await endedBuild(client, first.body.id))['status']).toBe('succeeded');
  const again = await send(context);
  expect([again.status, again.text, again.headers.get('idempotency-replayed')]).toEqual([
    200,
    first.text,
    'true',
  ]);
  expect((await send(SIMPLE)).body.error.code).toBe('idempotency_conflict');
  expect((await client.get('/v1/templates')).body.data).toHaveLength(1);
  const remove = async () =>
    client.request('DELETE', `/v1/templates/${first.body.id}`, { headers: { 'idempotency-key': 'remove' } });
  const removed = await remove();
  expect(removed.status).toBe(200);
  expect((await remove()).text).toBe(removed.text);
  const { rows } = await service.ctx.pool.query('select 1 from template_contexts where org_id = $1', [
    client.org.id,
  ]);
  expect(rows).toEqual([]);
});

test('the log of a build has a bounded number of parts', async () => {
  const client = await service.newOrg();
  const { id } = await build(client, 'log:1', SIMPLE);
  const { pool } = service.ctx;
  await pool.query('delete from template_logs where org_id = $1', [client.org.id]);
  const log = new BuildLog(service.ctx, { orgId: client.org.id, templateId: id });
  const streams = [log.stream('stdout'), log.stream('stderr')];
  for (let index = 0; index < 40_000; index += 1) streams[index % 2]!.push(Buffer.from('x'));
  await log.flush();
  const pieces = await logOf(client, id);
  // A part is charged with 256 bytes and its text.
  expect(pieces.length).toBe(Math.ceil(MOST_LOG_BYTES / 257) + 1);
  expect(pieces.at(-1)).toMatchObject({
    source: 'build',
    text: expect.stringContaining('the log is full at 4194304 bytes'),
  });
});
