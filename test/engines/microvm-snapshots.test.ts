import { existsSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { placesOf, snapshotsDirectory } from '../../src/engines/microvm/places.js';
import type { Client } from '../support/client.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { destroyAll, IMAGE, makeMicrovmDirectory, onMicrovm, shIn } from '../support/microvm/service.js';
import { until } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';
import { importTo } from '../support/snapshot-archives.js';
import { capture, clientDigest, forked } from '../support/snapshots.js';
import { build } from '../support/templates.js';

const MIB = 1024 ** 2;
const RUNNING = { start: true, wait_for: 'running', wait_timeout: 120 };
const SMALL = { resources: { vcpus: 1, memory_mib: 192 }, network: { enabled: false } };
const MACHINE_ID = 'cat /etc/machine-id /proc/sys/kernel/random/boot_id; hostname';

/** One story: boots are slow with emulation. */
describeMicrovm('snapshots of virtual machines', () => {
  let dataDir: string;
  let service: TestService;
  let client: Client;
  let source: string;
  beforeAll(async () => {
    dataDir = await makeMicrovmDirectory();
    service = await startTestService({
      ...onMicrovm(dataDir),
      settings: { stopGraceMs: 20_000, volumePurgeAfterMs: 0 },
    });
    client = await service.newOrg();
  });
  afterAll(async () => {
    await destroyAll(service, client);
    await service.close();
    rmSync(dataDir, { recursive: true, force: true });
  });

  const engine = () => join(dataDir, 'microvm');
  const stored = () => readdirSync(snapshotsDirectory(engine())).toSorted();
  const create = async (name: string, image: object, more: object = {}) => {
    const { body, text } = await client.post('/v1/sandboxes', { name, image, ...SMALL, ...more }, RUNNING);
    expect(body.status, text).toBe('running');
    return body;
  };
  const inside = async (id: string, script: string) => shIn(service, id, script);
  const stop = async (id: string) =>
    client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped', wait_timeout: 120 });

  test('a sandbox that runs is captured, and another one begins with its files and an identity of its own', async () => {
    const image = { type: 'oci', reference: IMAGE };
    ({ id: source } = await create('source', image, {
      pull_policy: 'never',
      env: [{ key: 'TOKEN', value: 'a-value-that-nobody-may-read', secret: true }],
    }));
    // Nothing of it is on the disk yet.
    await inside(
      source,
      'head -c 3000000 /dev/urandom > /srv/data; rm /bin/tail; ln -s data /srv/link; echo 0123 > /etc/machine-id',
    );
    const operation = await capture(client, source, 'first', { record_integrity: true });
    expect([operation['status'], operation['error']]).toEqual(['succeeded', null]);
    const { manifest, digest, size_bytes } = operation['result'];
    expect(digest).toBe(clientDigest(manifest));
    expect(manifest.state).toMatchObject({ format: 'qcow2', fstype: 'ext4', upper: { file: 'layer.qcow2' } });
    expect(manifest.state.upper.integrity.digest).toMatch(/^sha256:[0-9a-f]{64}$/);
    expect(size_bytes).toBeGreaterThan(3_000_000);
    expect(size_bytes).toBeLessThan(3_000_000 + 8 * MIB);
    const sum = await inside(source, 'md5sum < /srv/data');
    expect(await inside(source, 'cat /etc/machine-id')).toBe('0123');

    const snapshot = { type: 'disk_snapshot', id: 'first' };
    const patches = [{ type: 'text', path: '/srv/patched', content: 'patched', replace: false }];
    const made = await create('second', snapshot, { patches });
    expect([made.disk_snapshot_id, made.spec.image]).toEqual([operation['id'], IMAGE]);
    expect(made.spec.resources.disk_size_mib).toBe(256);
    expect(
      await inside(made.id, 'md5sum < /srv/link; ls /bin/tail 2>&1; cat /srv/patched; echo "$TOKEN"'),
    ).toBe(`${sum}\nls: /bin/tail: No such file or directory\npatched`);
    const [id, boot, host] = (await inside(made.id, MACHINE_ID)).split('\n');
    expect(id).toMatch(/^[0-9a-f]{32}$/);
    const [, sourceBoot, sourceHost] = (await inside(source, MACHINE_ID)).split('\n');
    expect([boot, host]).not.toEqual([sourceBoot, sourceHost]);
    expect(host).not.toBe(sourceHost);

    // Its base stays when the snapshot goes; a restart keeps what it wrote, and applies nothing again.
    expect((await client.delete('/v1/snapshots/by-name/first')).status).toBe(200);
    await inside(made.id, 'echo changed > /srv/patched; rm /srv/link; echo more > /srv/more');
    await stop(made.id);
    const child = await capture(client, made.id, 'child');
    expect(child['error']).toBeNull();
    expect(child['result'].manifest.parent).toBe(digest);
    expect(child['result'].size_bytes).toBeGreaterThan(size_bytes);
    expect(child['result'].size_bytes).toBeLessThan(size_bytes + 3 * MIB);
    await client.post(`/v1/sandboxes/${made.id}/start`, {}, { wait_for: 'running', wait_timeout: 120 });
    expect(await inside(made.id, 'cat /srv/patched /srv/more /etc/machine-id; md5sum < /srv/data')).toBe(
      `changed\nmore\n${id}\n${sum}`,
    );
    await client.delete(`/v1/sandboxes/${source}`);
    await client.delete(`/v1/sandboxes/${made.id}`);
    // The snapshot goes with the last sandbox that was made from it.
    await until(
      async () => Promise.resolve(stored()),
      (names) => names.join() === child['id'],
    );
  });

  test('forks share one capture, and each takes at most 2 MiB of the disk', async () => {
    const base = await create('base', { type: 'disk_snapshot', id: 'child' });
    await inside(base.id, 'head -c 5000000 /dev/urandom > /srv/big');
    const sum = await inside(base.id, 'md5sum < /srv/big');
    const { body, text } = await client.post(`/v1/sandboxes/${base.id}/fork`, { count: 2 });
    expect(body.status, text).toBe('queued');
    const operation = await forked(client, body.id);
    expect([operation['status'], operation['error']]).toEqual(['succeeded', null]);
    const copies = await until(
      async () => (await client.get(`/v1/fork-operations/${body.id}`)).body.sandboxes as any[],
      (found) => found.every(({ status }) => status !== 'starting'),
      120_000,
    );
    expect(copies.map(({ status }) => status)).toEqual(['running', 'running']);
    for (const { id } of copies) {
      expect(await inside(id, 'md5sum < /srv/big; cat /srv/more')).toBe(`${sum}\nmore`);
      const { directory } = placesOf(engine(), id);
      const bytes = readdirSync(directory, { recursive: true, encoding: 'utf8' })
        // A file may vanish meanwhile.
        .map((name) => statSync(join(directory, name), { throwIfNoEntry: false }))
        .filter((found) => found?.nlink === 1)
        .reduce((total, found) => total + found!.blocks * 512, 0);
      expect(bytes).toBeLessThanOrEqual(2 * MIB);
    }
    const identities = await Promise.all(
      [base.id, ...copies.map(({ id }) => id)].map(async (id) => inside(id, MACHINE_ID)),
    );
    expect(new Set(identities.map((one) => one.split('\n')[0])).size).toBe(3);
    expect(stored()).toContain(body.id);
    expect(stored().length).toBe(2);
    for (const { id } of copies) await client.delete(`/v1/sandboxes/${id}`);
    await until(
      async () => Promise.resolve(stored()),
      (names) => !names.includes(body.id),
    );

    // The memory of a paused sandbox has files that its disk lacks.
    await client.post(`/v1/sandboxes/${base.id}/pause`, {}, { wait_for: 'paused', wait_timeout: 120 });
    const refused = await client.post('/v1/snapshots', { kind: 'disk', sandbox_id: base.id, name: 'paused' });
    expect([refused.status, refused.body.error.message]).toEqual([400, expect.stringContaining('paused')]);
    expect((await client.get('/v1/sandboxes/snapshot-candidates')).body.data).toEqual([]);
    await client.delete(`/v1/sandboxes/${base.id}`);
    const resized = { type: 'disk_snapshot', id: 'child' };
    const resources = { ...SMALL.resources, disk_size_mib: 512 };
    const other = await client.post(
      '/v1/sandboxes',
      { name: 'resized', image: resized, ...SMALL, resources },
      RUNNING,
    );
    expect([other.status, other.body.error]).toEqual([
      400,
      expect.objectContaining({
        code: 'invalid_sandbox_config',
        message: expect.stringContaining('the disk of the snapshot has 256 MiB, and cannot be resized'),
        details: { field: 'resources.disk_size_mib' },
      }),
    ]);
    expect((await client.delete('/v1/snapshots/by-name/child')).status).toBe(200);
    await until(
      async () => Promise.resolve(stored()),
      (names) => names.length === 0,
    );
    expect(existsSync(placesOf(engine(), base.id).directory)).toBe(false);
  });

  test('an image of an archive becomes a snapshot', async () => {
    const archive = readFileSync(join(dataDir, 'image.tar'));
    const { status, body, text } = await importTo(client, archive, { name: 'imported' });
    expect(status, text).toBe(200);
    expect(body.size_bytes).toBeGreaterThan(MIB);
    expect(body.manifest.state).toMatchObject({ format: 'qcow2', fstype: 'ext4' });
    const { id, spec } = await create('of-import', { type: 'disk_snapshot', id: 'imported' });
    expect(spec.resources.disk_size_mib).toBe(256);
    expect(await inside(id, 'echo $FROM_IMAGE; pwd; id -un; touch /srv/new; ls /srv')).toBe(
      'yes\n/srv\nroot\nnew',
    );
    const broken = Buffer.from(archive);
    broken.fill(0, broken.indexOf('busybox'), broken.indexOf('busybox') + 4_096);
    const refused = await importTo(client, broken, { name: 'broken' });
    expect([refused.status, refused.body.error.code]).toEqual([400, 'invalid_request']);
    await client.delete(`/v1/sandboxes/${id}`);
    expect((await client.delete('/v1/snapshots/by-name/imported')).status).toBe(200);
    await until(
      async () => Promise.resolve(stored()),
      (names) => names.length === 0,
      60_000,
    );
  });

  test('a template is built by its stages and steps, and starts with its files', async () => {
    const file = `FROM ${IMAGE} AS made
RUN mkdir /out && echo made > /out/made && ln -s made /out/link && chmod 750 /out/made
FROM ${IMAGE}
COPY a.txt /srv/
COPY --from=made /out /srv/out/
ENV GREETING=hello
RUN echo "$GREETING" > /srv/greeting
`;
    const sandbox = JSON.stringify({ ...SMALL, pull_policy: 'never' });
    const template = await build(
      client,
      'tools:1',
      { Dockerfile: file, 'a.txt': 'content of a' },
      { sandbox },
    );
    expect([template['status'], template['error']]).toEqual(['succeeded', null]);
    const { id } = await create('of-template', { type: 'template', name: 'tools', tag: '1' });
    expect(
      await inside(
        id,
        'cat /srv/a.txt /srv/greeting /srv/out/link; ls -l /srv/out/made; test -e /out || echo none',
      ),
    ).toMatch(/^content of ahello\nmade\n-rwxr-x--- .*\nnone$/);
    await client.delete(`/v1/sandboxes/${id}`);
    await client.delete(`/v1/templates/${template['id']}`);
    await until(
      async () => Promise.resolve(stored()),
      (names) => names.length === 0,
      60_000,
    );
  });
});
