import { readdirSync } from 'node:fs';
import { request } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { FULL_ACCESS, type Access } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import { tarHeader } from '../../../src/lib/tar-entry.js';
import { newId } from '../../../src/lib/uuid.js';
import { setQuotas } from '../../../src/quotas/set.js';
import type { Client } from '../../support/client.js';
import { layoutFiles, savedFiles, type Files } from '../../support/image-files.js';
import { until } from '../../support/polling.js';
import { layerOf } from '../../support/private-registry.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';
import {
  exportOf,
  imageIn,
  importTo,
  packFiles,
  sha256Of,
  TEXT_ARCHIVE,
} from '../../support/snapshot-archives.js';
import { capture, clientDigest, ended } from '../../support/snapshots.js';

const running = { start: true, wait_for: 'running' } as const;
const ARCHIVE = Buffer.from(TEXT_ARCHIVE, 'latin1');
const GIB = 1024 ** 3;

let service: TestService;
let client: Client;
let layer: Buffer;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
  layer = await layerOf({ 'etc/kept': 'kept' });
});
afterAll(() => service.close());

async function keyWith(access: Partial<Access>, of = client): Promise<Client> {
  const made = await createKey(service.ctx.pool, of.org.id, 'tried', operator('test'), {
    ...FULL_ACCESS,
    ...access,
  });
  return { ...of, key: made.key };
}

async function typesOf(of: Client, resource: string): Promise<string[]> {
  const { body } = await of.get('/v1/events', { resource_id: resource, limit: 100 });
  return body.data.map(({ event_type }: { event_type: string }) => event_type).toReversed();
}

async function namesOf(of: Client): Promise<string[]> {
  const { body } = await of.get('/v1/snapshots', { limit: 100 });
  return body.data.map(({ name }: { name: string }) => name);
}

/** The snapshots that the engine has, and not the store. */
async function strays(): Promise<string[]> {
  const { rows } = await service.ctx.pool.query<{ id: string }>(
    `select id from snapshots where status in ('ready', 'deleting')`,
  );
  const known = new Set(rows.map(({ id }) => id));
  const held = await service.runtime.snapshots!.list();
  return held.map(({ snapshotId }) => snapshotId).filter((id) => !known.has(id));
}

describe('an export', () => {
  test('is an OCI layout whose digests are right, with the names and labels of the snapshot', async () => {
    const { body } = await client.post('/v1/sandboxes', smallRequest('source'), running);
    const { result } = await capture(client, body.id, 'first', { labels: { team: 'ml' } });
    const { status, headers, bytes } = await exportOf(client, result.id);
    expect([status, headers.get('content-type')]).toEqual([200, 'application/x-tar']);
    expect(headers.get('content-length')).toBe(String(bytes.length));
    expect(headers.get('content-disposition')).toBe('attachment; filename="first.tar"');
    const { digest, manifest, config } = await imageIn(bytes);
    expect(headers.get('docker-content-digest')).toBe(digest);
    expect(config).toMatchObject({ os: 'linux', config: { Labels: { team: 'ml' } } });
    expect(config.rootfs.diff_ids).toEqual(manifest.layers.map((one: any) => one.digest));
    expect(manifest.annotations).toMatchObject({
      'dev.sandkeep.snapshot.id': result.id,
      'dev.sandkeep.snapshot.digest': result.digest,
      'dev.sandkeep.snapshot.labels': '{"team":"ml"}',
      'dev.sandkeep.snapshot.source-sandbox': 'source',
      'org.opencontainers.image.title': 'first',
    });
    expect((await exportOf(client, 'by-name/first')).bytes.equals(bytes)).toBe(true);
    expect((await typesOf(client, result.id)).slice(-2)).toEqual(['snapshot_exported', 'snapshot_exported']);
    const { body: events } = await client.get('/v1/events', { event_type: 'snapshot_exported', limit: 1 });
    expect(events.data[0].payload).toMatchObject({
      name: 'first',
      image_digest: digest,
      bytes: bytes.length,
    });
  });

  test('needs the scope for files, and the labels of the key', async () => {
    const reader = await keyWith({ scopes: ['sandboxes:write'] });
    expect((await exportOf(reader, 'by-name/first')).status).toBe(403);
    const narrowed = await keyWith({ scopes: ['sandboxes:exec'], labels: { team: 'other' } });
    expect((await exportOf(narrowed, 'by-name/first')).status).toBe(404);
    const own = await keyWith({ scopes: ['sandboxes:exec'], labels: { team: 'ml' } });
    expect((await exportOf(own, 'by-name/first')).status).toBe(200);
  });
});

describe('an import', () => {
  test('takes an export as a snapshot of another organization, from which sandboxes start', async () => {
    const { bytes } = await exportOf(client, 'by-name/first');
    const other = await service.newOrg();
    const { status, body, text } = await importTo(other, bytes, { name: 'copy', labels: '{"from":"a"}' });
    expect(status, text).toBe(200);
    expect(body).toMatchObject({ name: 'copy', status: 'ready', sandbox_id: null, labels: { from: 'a' } });
    expect(body.manifest).toMatchObject({ source_sandbox: null, parent: null });
    expect(body.digest).toBe(clientDigest(body.manifest));
    const { manifest, config } = await imageIn(bytes);
    expect(body.manifest.image).toEqual({
      ref: `imported@${manifest.config.digest}`,
      manifest_digest: manifest.config.digest,
    });
    expect(body.manifest.state.upper.integrity.digest).toBe(config.rootfs.diff_ids.at(-1));
    expect(await namesOf(client)).not.toContain('copy');
    const request = { ...smallRequest('of-copy'), image: { type: 'disk_snapshot', id: 'copy' } };
    const made = await other.post('/v1/sandboxes', request, running);
    expect([made.body.status, made.body.disk_snapshot_id], made.text).toEqual(['running', body.id]);
    expect(await typesOf(other, body.id)).toEqual(['snapshot_imported']);
    expect((await ended(other, body.id))['sandbox_id']).toBeNull();
    expect((await other.get('/v1/quotas')).body.snapshots).toBe(1);
    const usage = await other.get('/v1/billing/usage/storage');
    expect(usage.body.rows.map((row: any) => row.volume_id)).toContain(body.id);
    const again = await exportOf(other, body.id);
    expect((await imageIn(again.bytes)).manifest.annotations).not.toHaveProperty(
      'org.opencontainers.image.base.name',
    );
  });

  test('takes archives of "docker save" and layouts, with plain and compressed layers', async () => {
    const archives: Record<string, Files> = {
      saved: savedFiles([layer]),
      'saved-gzip': { ...savedFiles([layer]), '0/layer.tar': gzipSync(layer) },
      layout: layoutFiles([layer]),
      'layout-gzip': layoutFiles([layer], [gzipSync(layer)]),
    };
    for (const [name, files] of Object.entries(archives)) {
      const { status, body, text } = await importTo(client, packFiles(files), { name });
      expect([name, status], text).toEqual([name, 200]);
      expect(body.size_bytes).toBe(layer.length);
      expect(body.manifest.state.upper.integrity.digest).toBe(sha256Of(layer));
    }
  });

  test('is executed once for an idempotency key', async () => {
    const send = async (archive: Buffer) =>
      importTo(client, archive, { name: 'keyed' }, { 'idempotency-key': 'one' });
    const first = await send(ARCHIVE);
    const second = await send(ARCHIVE);
    expect([first.status, second.status, second.body]).toEqual([200, 200, first.body]);
    expect(second.headers.get('idempotency-replayed')).toBe('true');
    const other = await send(packFiles(savedFiles([layer])));
    expect([other.status, other.body.error.code]).toEqual([409, 'idempotency_conflict']);
  });

  test('is refused for a name, a label, a quota, a scope, before the archive is read', async () => {
    const cases: [Record<string, string>, number, string][] = [
      [{ name: 'first' }, 409, 'snapshot_already_exists'],
      [{ name: '-' }, 400, 'invalid_request'],
      [{ name: newId() }, 400, 'invalid_request'],
      [{ name: 'x', labels: '[]' }, 400, 'invalid_request'],
      [{ name: 'x', labels: '{"sandbox.x":"y"}' }, 400, 'invalid_request'],
      [{ name: 'x', force: 'true' }, 400, 'invalid_request'],
      [{}, 400, 'invalid_request'],
    ];
    for (const [query, status, code] of cases) {
      const answer = await importTo(client, ARCHIVE, query);
      expect([query, answer.status, answer.body.error.code], answer.text).toEqual([query, status, code]);
    }
    const executor = await keyWith({ scopes: ['sandboxes:exec'] });
    expect((await importTo(executor, ARCHIVE, { name: 'x' })).status).toBe(403);
    const narrowed = await keyWith({ scopes: ['sandboxes:write'], labels: { team: 'ml' } });
    const refused = await importTo(narrowed, ARCHIVE, { name: 'x', labels: '{"team":"other"}' });
    expect([refused.status, refused.body.error.code]).toEqual([403, 'label_not_allowed']);
    expect((await importTo(narrowed, ARCHIVE, { name: 'narrow' })).body.labels).toEqual({ team: 'ml' });
  });

  test('obeys the quotas of number and bytes, also for what a compressed layer becomes', async () => {
    const org = await service.newOrg();
    await setQuotas(
      service.ctx.pool,
      org.org.id,
      { max_snapshots: 1, max_snapshot_gib: 1 },
      operator('test'),
    );
    const first = await importTo(org, ARCHIVE, { name: 'first' });
    const second = await importTo(org, ARCHIVE, { name: 'second' });
    expect([first.status, second.status, second.body.error.code]).toEqual([200, 403, 'quota_exceeded']);
    // Also with a new key: the rest of the body is not read.
    const slow = await fetch(`${org.url}/v1/snapshots/import?name=third`, {
      method: 'POST',
      headers: { authorization: `Bearer ${org.key}`, 'idempotency-key': 'new' },
      body: new ReadableStream(
        { pull: (stream) => stream.enqueue(new Uint8Array(1_000)) },
        { highWaterMark: 0 },
      ),
      duplex: 'half',
    }).catch((error: unknown) => error);
    if (slow instanceof Response) expect(slow.status).toBe(403);
    await setQuotas(service.ctx.pool, org.org.id, { max_snapshots: 9 }, operator('test'));
    const fill = 'update snapshots set size_bytes = $1 where id = $2';
    await service.ctx.pool.query(fill, [GIB - 100_000, first.body.id]);
    const large = await layerOf({ zeros: '\0'.repeat(200_000) });
    const bomb = packFiles(layoutFiles([large], [gzipSync(large)]));
    expect(bomb.length).toBeLessThan(50_000);
    const burst = await importTo(org, bomb, { name: 'bomb' });
    expect([burst.status, burst.body.error.code], burst.text).toEqual([403, 'quota_exceeded']);
    // The same layer many times is unpacked many times.
    const many = packFiles(layoutFiles(Array.from({ length: 100 }, () => layer)));
    const repeated = await importTo(org, many, { name: 'many' });
    expect([repeated.status, repeated.body.error.code], repeated.text).toEqual([403, 'quota_exceeded']);
    const plain = await importTo(org, packFiles(layoutFiles([large])), { name: 'plain' });
    expect([plain.status, plain.body.error.code], plain.text).toEqual([403, 'quota_exceeded']);
    expect(await namesOf(org)).toEqual(['first']);
    const { body } = await org.get('/v1/snapshot-operations', { limit: 100 });
    expect(body.data.map((one: any) => [one.name, one.status, one.error?.code ?? null])).toEqual([
      ['many', 'failed', 'quota_exceeded'],
      ['bomb', 'failed', 'quota_exceeded'],
      ['first', 'succeeded', null],
    ]);
  });

  test('refuses hostile archives, and leaves nothing of them', async () => {
    const json = (value: unknown) => Buffer.from(JSON.stringify(value));
    const saved = savedFiles([layer]);
    const layout = layoutFiles([layer]);
    const configFile = Object.keys(saved).find((name) => /^[0-9a-f]{64}\.json$/.test(name));
    const layerFile = `blobs/${sha256Of(layer).replace(':', '/')}`;
    const without = (files: Files, name: string) =>
      Object.fromEntries(Object.entries(files).filter(([own]) => own !== name));
    const config = JSON.parse((saved[configFile!] as Buffer).toString());
    const foreign = { ...config, architecture: 'riscv64' };
    const twice = (saved[configFile!] as Buffer).toString().replace('"rootfs"', '"Rootfs":{},"rootfs"');
    const sparse = await layerOf({}, [{ name: 'x', type: 'file', pax: { 'GNU.sparse.major': '1' } }]);
    const sparseOfGnu = Buffer.from(layer);
    sparseOfGnu.write('S', 156);
    sparseOfGnu.write(' '.repeat(8), 148);
    const sum = sparseOfGnu.subarray(0, 512).reduce((left, byte) => left + byte);
    sparseOfGnu.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148);
    const longName = { name: 'x', type: 'file' as const, pax: { path: 'x'.repeat(1_000_000) } };
    const longNames = await layerOf(
      {},
      Array.from({ length: 17 }, () => longName),
    );
    const other = Buffer.from(layer);
    other[600] = 1;
    const cases: Record<string, [Buffer, RegExp]> = {
      empty: [Buffer.alloc(0), /empty|no archive/],
      text: [Buffer.from('no archive at all'), /shorter than a header/],
      noise: [Buffer.alloc(4096, 'x'), /no tar archive|no archive/],
      compressed: [gzipSync(packFiles(saved)), /uncompress it first/],
      cut: [packFiles(layout).subarray(0, 5_000), /not complete|ends within/],
      'without documents': [packFiles({ file: Buffer.from('x') }), /neither manifest.json nor index.json/],
      'without its layer': [packFiles(without(layout, layerFile)), /not complete/],
      'without its configuration': [packFiles(without(saved, configFile!)), /not complete/],
      'another layer': [packFiles({ ...layout, [layerFile]: other }), /digest/],
      'a longer layer': [
        packFiles({ ...layout, [layerFile]: Buffer.concat([layer, layer]) }),
        /bytes instead of/,
      ],
      'another layer of "docker save"': [packFiles({ ...saved, '0/layer.tar': other }), /has the digest/],
      'two images': [
        packFiles({
          ...saved,
          'manifest.json': json([...JSON.parse((saved['manifest.json'] as Buffer).toString()), {}]),
        }),
        /manifest|index/,
      ],
      'another platform': [packFiles({ ...saved, [configFile!]: json(foreign) }), /platform/],
      'a field twice': [packFiles({ ...saved, [configFile!]: Buffer.from(twice) }), /twice/],
      'no layers': [packFiles(savedFiles([])), /no layers/],
      'too many layers': [packFiles(savedFiles(Array.from({ length: 126 }, () => layer))), /126 layers/],
      'a sparse file': [packFiles(savedFiles([sparse])), /without the option --sparse/],
      'a sparse file of an earlier form': [
        packFiles(savedFiles([sparseOfGnu])),
        /without the option --sparse/,
      ],
      'a path outside': [
        packFiles({
          ...without(saved, '0/layer.tar'),
          'manifest.json': json([{ Config: configFile, Layers: ['../../../../etc/passwd'] }]),
        }),
        /not complete/,
      ],
      'long names': [longNames, /names of more than/],
      'many files': [Buffer.alloc(512 * 10_001, tarHeader('x', 0)), /more than 10000 files/],
      'a NUL in a variable': [
        packFiles({ ...saved, [configFile!]: json({ ...config, config: { Env: ['A=\0'] } }) }),
        /configuration/,
      ],
    };
    const org = await service.newOrg();
    for (const [name, [archive, reason]] of Object.entries(cases)) {
      const { status, body } = await importTo(org, archive, { name: 'hostile' });
      expect([name, status, body.error.code, body.error.message]).toEqual([
        name,
        400,
        'invalid_request',
        expect.stringMatching(reason),
      ]);
    }
    expect(await namesOf(org)).toEqual([]);
    // The name is free again.
    expect((await importTo(org, ARCHIVE, { name: 'hostile' })).status).toBe(200);
    await until(strays, (left) => left.length === 0);
  });

  test('that breaks off leaves nothing, and its name is free', async () => {
    const org = await service.newOrg();
    const { hostname, port } = new URL(org.url);
    const sending = request({
      hostname,
      port,
      method: 'POST',
      path: '/v1/snapshots/import?name=broken',
      headers: { authorization: `Bearer ${org.key}`, 'content-length': 1_000_000 },
    });
    sending.on('error', () => undefined);
    sending.write(ARCHIVE);
    const folder = join(service.ctx.disk.room('data')?.path ?? tmpdir(), 'imports');
    await until(
      async () =>
        Promise.resolve(service.ctx.disk.room('data') === undefined || readdirSync(folder).length === 0),
      (isEmpty) => isEmpty,
    );
    sending.destroy();
    expect((await importTo(org, ARCHIVE, { name: 'broken' })).status).toBe(200);
    const { body } = await org.get('/v1/snapshot-operations');
    expect(body.data.map((one: any) => one.status)).toEqual(['succeeded']);
  });

  test('fails when its process was killed, and what the engine has goes', async () => {
    const org = await service.newOrg();
    const id = newId();
    await service.ctx.pool.query(
      `insert into snapshots (org_id, id, name, labels, status, replaces, record_integrity, image, image_digest, runtime,
         worker_id, actor, created_at, updated_at)
       values ($1, $2, 'killed', '{}', 'in_progress', false, true, 'imported', null, 'simulated', $3,
         '{"kind":"system","code":"reconciler","label":"reconciler"}', now() - interval '2 minutes', now() - interval '2 minutes')`,
      [org.org.id, id, service.runtime.engineId],
    );
    await service.runtime.snapshotArchives!.load(
      { orgId: org.org.id, snapshotId: id },
      {
        platform: { os: 'linux', architecture: 'amd64' },
        created: '2026-01-01T00:00:00Z',
        config: {} as never,
        digest: sha256Of(layer),
        layers: [
          {
            digest: sha256Of(layer),
            diffId: sha256Of(layer),
            size: layer.length,
            open: async () =>
              Promise.resolve(
                (async function* () {
                  yield layer;
                })(),
              ),
          },
        ],
      },
      {
        step: async (work) => Promise.resolve(work()),
        signal: new AbortController().signal,
        budget: { take: () => undefined },
      },
    );
    const operation = await ended(org, id);
    expect([operation['status'], operation['error'].code]).toEqual(['failed', 'interrupted']);
    await until(strays, (left) => !left.includes(id), 60_000);
    expect(await typesOf(org, id)).toEqual(['snapshot_failed']);
    expect((await importTo(org, ARCHIVE, { name: 'killed' })).status).toBe(200);
  });
});
