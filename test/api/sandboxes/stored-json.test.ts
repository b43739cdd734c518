import { FULL_ACCESS } from '../../../src/access/access.js';
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { serializerOf } from '../../../src/http/serializer.js';
import { getSandbox } from '../../../src/sandboxes/queries.js';
import { PaginatedSandboxResponse, presentSandbox, SandboxResponse } from '../../../src/sandboxes/row.js';
import { SandboxSpec } from '../../../src/spec/specification.js';
import { SPEC_FORMAT } from '../../../src/spec/text.js';
import type { Client } from '../../support/client.js';
import { BARE_SPEC, clientOf, FULL_SPEC, importAll, line } from '../../support/import-lines.js';
import { startTestService, type TestService } from '../../support/service.js';
import { fullRequest, smallRequest } from '../../support/sandbox-requests.js';

const serializeSandbox = serializerOf(SandboxResponse);
const serializePage = serializerOf(PaginatedSandboxResponse);

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ worker: false });
});
afterAll(() => service.close());

/** The row serialized with the schema, as in answers to writes. */
async function bySchema(client: Client, id: string): Promise<string> {
  const row = (await getSandbox(service.ctx.pool, client.org.id, { id }))!;
  return serializeSandbox(presentSandbox(row, FULL_ACCESS));
}

async function storedSpec(id: string): Promise<{ spec: string; spec_format: number | null }> {
  const { rows } = await service.ctx.pool.query(
    'select spec::text as spec, spec_format from sandboxes where id = $1',
    [id],
  );
  return rows[0];
}

/** The parts of a schema that decide the output: all but its descriptions and examples. */
const shapeOf = (schema: unknown): string =>
  JSON.stringify(schema, (key, value: unknown) =>
    ['description', 'title', 'examples'].includes(key) ? undefined : value,
  );

test('a change of the schema of specifications needs a new format number', () => {
  // After a change raise SPEC_FORMAT in spec/text.ts, so that stored texts pass through the new schema. Then update
  // both values here.
  const digest = createHash('sha256').update(shapeOf(SandboxSpec)).digest('hex').slice(0, 16);
  expect([SPEC_FORMAT, digest]).toEqual([5, '9cad4d8b1cc600c0']);
});

test('reads return the bytes of the schema for created, relabelled and imported sandboxes', async () => {
  const client = await service.newOrg();
  await client.post('/v1/volumes', { name: 'data' });
  const full = fullRequest('full', 'data') as Record<string, any>;
  const created = await client.post('/v1/sandboxes', full);
  expect(created.status, created.text).toBe(200);
  const relabelled = await client.post('/v1/sandboxes', smallRequest('small', { labels: { a: 'b' } }));
  await client.patch(`/v1/sandboxes/${relabelled.body.id}`, { labels: { 'a"\\\n': 'ü\u2028' } });

  const org = line.org();
  const odd = { name: 'n"\\ü\u2028\t', slug: 's"\\\u0001', last_failure_message: 'out "of"\n\u0001 memory' };
  const imported = [
    line.sandbox(org, {
      ...odd,
      spec: FULL_SPEC,
      started_at: '2026-03-02T00:00:00.5Z',
      status: 'running',
      ephemeral: true,
    }),
    line.sandbox(org, { spec: { ...BARE_SPEC, resources: {}, image: null } }),
    line.sandbox(org, { status: 'starting', status_reason: 'scheduling', spec: null }),
  ];
  expect(await importAll(service, [org, ...imported])).toMatchObject({ committed: true, bad: [] });
  const importer = await clientOf(service, org);

  for (const [owner, ids] of [
    [client, [created.body.id, relabelled.body.id]],
    [importer, imported.map((each) => each['id'] as string)],
  ] as [Client, string[]][]) {
    for (const id of ids) {
      const { text, headers, body } = await owner.get(`/v1/sandboxes/${id}`);
      expect(headers.get('content-type')).toBe('application/json; charset=utf-8');
      expect(text).toBe(await bySchema(owner, id));
      expect((await owner.get(`/v1/sandboxes/by-name/${encodeURIComponent(body.name)}`)).text).toBe(text);
      if (body.spec === null) continue;
      expect(await storedSpec(id)).toEqual({ spec: JSON.stringify(body.spec), spec_format: SPEC_FORMAT });
    }
    for (const query of [{}, { limit: 1 }, { sort: 'name' }, { name_prefix: 'nobody' }]) {
      const { text, body } = await owner.get('/v1/sandboxes', query);
      expect(text).toBe(serializePage(body));
    }
  }
});

test('a long page is complete', async () => {
  const client = await service.newOrg();
  const env = [{ key: 'LONG', value: 'ü€'.repeat(12_000) }];
  for (const name of ['one', 'two', 'three', 'four']) {
    expect((await client.post('/v1/sandboxes', smallRequest(name, { env }))).status).toBe(200);
  }
  const { body, text, headers } = await client.get('/v1/sandboxes');
  expect(headers.get('content-length')).toBe(String(Buffer.byteLength(text)));
  expect(body.data.map((each: any) => each.spec.env)).toEqual([env, env, env, env]);
});

test('unknown fields of a request are not stored', async () => {
  const client = await service.newOrg();
  const runtime = { cmd: ['x'], nobody: 'knows' };
  const { body } = await client.post('/v1/sandboxes', smallRequest('more', { runtime }));
  expect((await storedSpec(body.id)).spec).not.toContain('nobody');
});

test('a specification of an older format, or changed by hand, is serialized with the schema', async () => {
  const client = await service.newOrg();
  const { body } = await client.post('/v1/sandboxes', smallRequest('older'));
  const kept = {
    ...body.spec,
    vault_path: 'nobody sees this',
    resources: { memory_mib: 256, vault_path: 'nobody sees this' },
  };
  await service.ctx.pool.query('update sandboxes set spec = $2 where id = $1', [
    body.id,
    JSON.stringify(kept),
  ]);
  expect(await storedSpec(body.id)).toMatchObject({ spec_format: null });
  const expected = { ...body.spec, resources: { vcpus: 1, memory_mib: 256 } };
  const { text, body: shown } = await client.get(`/v1/sandboxes/${body.id}`);
  expect(shown.spec).toEqual(expected);
  expect(text).toBe(await bySchema(client, body.id));
  expect((await client.get('/v1/sandboxes')).body.data).toEqual([shown]);
  // The next change stores the text in its shown form.
  await client.patch(`/v1/sandboxes/${body.id}`, { labels: { new: 'label' } });
  expect(await storedSpec(body.id)).toEqual({
    spec: JSON.stringify({ ...expected, labels: { new: 'label' } }),
    spec_format: SPEC_FORMAT,
  });
});

test('a specification too long for a short read is shown alone and in a list', async () => {
  const client = await service.newOrg();
  // Random bytes do not compress.
  const value = randomBytes(40_000).toString('base64');
  const env = [{ key: 'LONG', value }];
  const ids: string[] = [];
  for (const request of [smallRequest('short'), smallRequest('long', { env }), smallRequest('short-too')]) {
    const { body, status, text } = await client.post('/v1/sandboxes', request);
    expect(status, text).toBe(200);
    ids.unshift(body.id);
  }
  const texts = [];
  for (const id of ids) {
    const { text } = await client.get(`/v1/sandboxes/${id}`);
    expect(text).toBe(await bySchema(client, id));
    texts.push(text);
  }
  const list = await client.get('/v1/sandboxes');
  expect(list.text).toBe(`{"data":[${texts.join(',')}],"has_more":false,"next_cursor":null}`);
  expect(list.text).toContain(value);
});
