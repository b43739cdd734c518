import { randomUUID } from 'node:crypto';
import Docker from 'dockerode';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CaptureRefusedError, type Captured } from '../../src/engine/runtime.js';
import { Images } from '../../src/engines/docker/images/images.js';
import { DiskCaptures } from '../../src/engines/docker/snapshots/disk-captures.js';
import { snapshotName } from '../../src/engines/docker/snapshots/snapshot-image.js';
import { findRemains } from '../../src/engines/docker/remains.js';
import { newId } from '../../src/lib/uuid.js';
import { readInstance } from '../../src/db/instance-queries.js';
import { containerOf, describeDocker, docker, IMAGE, SOCKET } from '../support/docker.js';
import { openEngineRelay } from '../support/engine-relay.js';
import { startInside, type Inside } from '../support/inside.js';
import { until } from '../support/polling.js';
import { makeFolder } from '../support/processes.js';
import { architecture } from '../support/pulled-images.js';
import { capture, clientDigest } from '../support/snapshots.js';

const MIB = 1024 * 1024;
const SECRET = 'a-value-that-nobody-may-read';

describeDocker('snapshots of containers', () => {
  let inside: Inside;
  let instanceId: string;
  beforeAll(async () => {
    inside = await startInside({ settings: { volumePurgeAfterMs: 0 } });
    ({ id: instanceId } = await readInstance(inside.service.ctx.pool));
  });
  afterAll(async () => {
    const { body } = await inside.client.get('/v1/snapshots', { limit: 100 });
    for (const { id } of body.data) await inside.client.delete(`/v1/snapshots/${id}`);
    for (const { id } of (await inside.client.get('/v1/sandboxes', { limit: 100 })).body.data) {
      await inside.client.delete(`/v1/sandboxes/${id}`);
    }
    await until(imagesOf, (images) => images.length === 0, 60_000);
    await inside.close();
  });

  const exec = async (id: string, script: string) => {
    const { body, text } = await inside.client.post(`/v1/sandboxes/${id}/exec`, {
      cmd: 'sh',
      args: ['-c', script],
    });
    expect(body.exit_code, text).toBe(0);
    return body.stdout as string;
  };
  const stop = async (id: string) =>
    inside.client.post(`/v1/sandboxes/${id}/stop`, undefined, { wait_for: 'stopped' });
  const fromSnapshot = async (name: string, reference: string, part: object = {}) => {
    const request = {
      source: 'disk_snapshot',
      disk_snapshot_ref: { type: 'managed', id: reference },
      name,
      resources: { vcpus: 1, memory_mib: 64 },
      runtime: { cmd: ['sleep', '600'] },
      ...part,
    };
    const { body, text } = await inside.client.post('/v1/sandboxes', request, {
      start: true,
      wait_for: 'running',
    });
    expect(body.status, text).toBe('running');
    return body;
  };
  /** The images of the service that come from containers. */
  async function imagesOf() {
    return docker.listImages({ filters: { label: [`dev.sandkeep.instance=${instanceId}`] } });
  }

  test('a running sandbox is captured, and another one begins with its files and the defaults of the image', async () => {
    const id = await inside.start('source', {
      env: [
        { key: 'TOKEN', value: SECRET, secret: true },
        { key: 'PLAIN', value: 'of-the-source' },
      ],
      runtime: { cmd: ['sleep', '600'], scripts: { own: 'echo own' } },
      labels: { team: 'ml' },
    });
    await exec(id, 'echo kept > /srv/file && rm /bin/tail && ln -s file /srv/link && chmod 700 /srv');
    const operation = await capture(inside.client, id, 'first', {
      labels: { a: 'b' },
      record_integrity: true,
    });
    expect([operation['status'], operation['error']]).toEqual(['succeeded', null]);
    const snapshot = operation['result'];
    expect(snapshot).toMatchObject({
      kind: 'disk',
      name: 'first',
      sandbox_id: id,
      labels: { a: 'b' },
      location: { type: 'managed', id: operation['id'] },
    });
    expect(snapshot.digest).toBe(clientDigest(snapshot.manifest));
    expect(snapshot.size_bytes).toBeGreaterThan(0);
    // It runs on.
    expect(await exec(id, 'echo alive')).toBe('alive\n');

    const made = await fromSnapshot('second', 'first', { env: [{ key: 'OWN', value: 'x' }] });
    expect([made.disk_snapshot_id, made.spec.image, made.image_digest]).toEqual([
      operation['id'],
      IMAGE,
      (await inside.client.get(`/v1/sandboxes/${id}`)).body.image_digest,
    ]);
    expect(await exec(made.id, 'cat /srv/link; test -e /bin/tail || echo gone; env')).toMatch(
      /^kept\ngone\n/,
    );
    const environment = await exec(made.id, 'env');
    expect(environment).toContain('OWN=x');
    expect(environment).not.toMatch(/TOKEN|PLAIN/);
  });

  test('the image has nothing of the container but its files, and its content has the recorded digest', async () => {
    const [image] = await imagesOf();
    const { Id, RootFS, ...inspected } = await docker.getImage(image!.Id).inspect();
    const text = JSON.stringify(inspected);
    expect(text).not.toContain(SECRET);
    expect(text).not.toMatch(/TOKEN|PLAIN|of-the-source|sleep|dev\.sandkeep\.label/);
    const { body } = await inside.client.get('/v1/snapshots/by-name/first');
    expect(body.manifest.state.upper.integrity).toEqual({
      algorithm: 'sha256',
      digest: RootFS.Layers!.at(-1),
    });
    expect(image!.RepoTags).toEqual([`sandkeep/snapshot:${body.id}`]);
    expect(Id).toMatch(/^sha256:/);
  });

  test('a stopped sandbox is captured, without its volumes and without its secrets', async () => {
    const { body: volume } = await inside.client.post('/v1/volumes', { name: 'data' });
    const mount = { type: 'named', name: 'data', guest: '/mnt' };
    const id = await inside.start('stopped', { mounts: [mount] });
    await exec(id, 'echo volume > /mnt/file && echo disk > /srv/file');
    await stop(id);
    const operation = await capture(inside.client, id, 'at-rest');
    expect(operation['status'], JSON.stringify(operation['error'])).toBe('succeeded');
    const made = await fromSnapshot('from-stopped', operation['id']);
    expect(await exec(made.id, 'cat /srv/file; ls /mnt | wc -l 2>/dev/null || ls /mnt')).toMatch(
      /^disk\n0?\n?$/,
    );
    expect(volume.name).toBe('data');
  });

  test('a sandbox keeps its base when the snapshot is deleted, and the image goes with the sandbox', async () => {
    const id = await inside.start('base-source');
    await exec(id, 'echo base > /srv/base');
    const operation = await capture(inside.client, id, 'base');
    const made = await fromSnapshot('on-base', 'base');
    await exec(made.id, 'echo more > /srv/more');
    const child = await capture(inside.client, made.id, 'child');
    expect(child['result'].manifest.parent).toBe(operation['result'].digest);
    expect(child['result'].size_bytes).toBeGreaterThan(operation['result'].size_bytes);
    expect((await inside.client.delete('/v1/snapshots/by-name/base')).status).toBe(200);
    await until(
      async () => (await inside.client.get(`/v1/snapshots/${operation['id']}`)).status,
      (status) => status === 404,
    );
    await stop(made.id);
    await inside.client.post(`/v1/sandboxes/${made.id}/start`, undefined, { wait_for: 'running' });
    expect(await exec(made.id, 'cat /srv/base')).toBe('base\n');
    await inside.client.delete(`/v1/sandboxes/${made.id}`);
    const named = async () =>
      (await imagesOf()).some(({ RepoTags }) => RepoTags?.includes(`sandkeep/snapshot:${operation['id']}`));
    await until(named, (found) => !found, 60_000);
    // The child has the layers of its parent.
    const grandchild = await fromSnapshot('on-child', 'child');
    expect(await exec(grandchild.id, 'cat /srv/base /srv/more')).toBe('base\nmore\n');
  });

  test('no caller starts a sandbox from the image of a snapshot by its name', async () => {
    const { body } = await inside.client.get('/v1/snapshots/by-name/first');
    const request = {
      name: 'thief',
      image: { type: 'oci', reference: `sandkeep/snapshot:${body.id}` },
      pull_policy: 'never',
      resources: { vcpus: 1, memory_mib: 64 },
    };
    const created = await inside.client.post('/v1/sandboxes', request, { start: true, wait_for: 'running' });
    expect(created.body.status).toBe('failed');
    await inside.client.delete(`/v1/sandboxes/${created.body.id}`);
  });

  test('labels of an image do not change the size of a snapshot of its sandbox', async () => {
    const id = await inside.start('forger');
    const { id: containerId } = (await containerOf(id))!;
    const labels = { instance: instanceId, snapshot: id, 'base.bytes': '0' };
    const changes = Object.entries(labels).map(([key, value]) => `LABEL dev.sandkeep.${key}=${value}`);
    await docker.getContainer(containerId).commit({ repo: 'forged-image', tag: '1', changes } as object);
    const forged = await docker.getImage('forged-image:1').inspect();
    expect(forged.Config.Labels).toMatchObject({ 'dev.sandkeep.base.bytes': '0' });
    const victim = await inside.start('forged', { image: { type: 'oci', reference: 'forged-image:1' } });
    await exec(victim, 'echo more > /srv/more');
    const { result, error } = await capture(inside.client, victim, 'of-forged');
    expect(error).toBeNull();
    expect(result.size_bytes).toBeGreaterThan(0);
    expect(result.size_bytes).toBeLessThan(forged.Size);
    await inside.client.delete('/v1/snapshots/by-name/of-forged');
    await inside.client.delete(`/v1/sandboxes/${victim}`);
    await until(
      async () =>
        docker
          .getImage('forged-image:1')
          .remove()
          .then(
            () => true,
            () => false,
          ),
      (done) => done,
      60_000,
    );
  });

  describe('the sandbox of a capture', () => {
    let id: string;
    let container: Docker.Container;
    let captures: DiskCaptures;
    let count = 0;
    const state = async () => (await container.inspect()).State.Status;
    const capturing = async (admit: (bytes: number) => Promise<void>, sandboxId = id) => {
      const original = captures.capture.bind(captures);
      captures.capture = async (wanted, signal) => original({ ...wanted, admit }, signal);
      try {
        return await capture(inside.client, sandboxId, `during-${(count += 1)}`);
      } finally {
        captures.capture = original;
      }
    };

    beforeAll(async () => {
      id = await inside.start('during');
      container = docker.getContainer((await containerOf(id))!.id);
      captures = inside.service.runtime.snapshots as DiskCaptures;
    });

    test('cannot make its disk larger than what was admitted', async () => {
      const grow = 'while :; do truncate -s 64M /srv/sparse; truncate -s 0 /srv/sparse; done';
      const growing = await inside.start('growing', { runtime: { cmd: ['sh', '-c', grow] } });
      const sizes = new Set<boolean>();
      // The size at the pause is chance.
      for (let round = 0; round < 40 && sizes.size < 2; round += 1) {
        let admitted = 0;
        const { error, result } = await capturing(async (bytes) => {
          admitted = bytes;
        }, growing);
        expect(error).toBeNull();
        sizes.add(admitted >= 64 * MIB);
        // The engine does not count directories alike.
        expect(Math.abs(result.size_bytes - admitted)).toBeLessThan(MIB);
      }
      expect(sizes.size, 'the file was large at one pause, and small at another').toBe(2);
    });

    test('runs on after a refusal, which leaves nothing', async () => {
      const idsOf = async () => (await imagesOf()).map(({ Id }) => Id).toSorted();
      const before = await idsOf();
      const { error } = await capturing(async () => {
        expect(await state()).toBe('paused');
        throw new CaptureRefusedError('not_supported', 'not today');
      });
      expect(error.message).toBe('not today');
      expect(await state()).toBe('running');
      expect(await idsOf()).toEqual(before);
    });

    test('that is stopped runs nothing more, whatever grace period it has', async () => {
      const trap = 'trap "truncate -s 64M /srv/grown; exit 3" TERM; while :; do sleep 0.1; done';
      const stopping = await inside.start('stopping', { runtime: { cmd: ['sh', '-c', trap] } });
      const stopped = docker.getContainer((await containerOf(stopping))!.id);
      const { error } = await capturing(async () => {
        await inside.service.runtime.stop(stopping, 60_000);
      }, stopping);
      expect(error.code).toBe('sandbox_changed');
      expect((await stopped.inspect()).State).toMatchObject({ Status: 'exited', ExitCode: 137 });
      await expect(stopped.infoArchive({ path: '/srv/grown' })).rejects.toThrow('404');
    });

    test('runs as soon as the process closes, and is captured by another attempt', async () => {
      let attempts = 0;
      const answer = await capturing(async () => {
        attempts += 1;
        if (attempts > 1) return;
        await captures.close();
        expect(await state()).toBe('running');
      });
      expect([answer['error'], attempts]).toEqual([null, 2]);
    });

    test('keeps the snapshot that another process has made meanwhile', async () => {
      const images = new Images(docker, architecture, undefined);
      const own = () => new DiskCaptures({ docker, untimed: docker, instanceId, images });
      const ids = { orgId: inside.client.org.id, snapshotId: newId(), sandboxId: id };
      const idOf = async () => (await docker.getImage(snapshotName(ids.snapshotId)).inspect()).Id;
      const never = new AbortController().signal;
      let made: [string, Captured] | undefined;
      const admit = async () => {
        const captured = await own().capture(ids, never);
        made = [await idOf(), captured];
      };
      const late = await own().capture({ ...ids, admit }, never);
      expect([await idOf(), late]).toEqual(made);
      await own().remove(ids.snapshotId);
    });

    test('gets no snapshot by a process that has lost the lease during its commit', async () => {
      const images = new Images(docker, architecture, undefined);
      const own = new DiskCaptures({ docker, untimed: docker, instanceId, images });
      const ids = { orgId: inside.client.org.id, snapshotId: newId(), sandboxId: id };
      const lost = new AbortController();
      const admit = async () => lost.abort(new Error('the lease is lost'));
      await expect(own.capture({ ...ids, admit }, lost.signal)).rejects.toThrow('the lease is lost');
      expect(await state()).toBe('running');
      await expect(docker.getImage(snapshotName(ids.snapshotId)).inspect()).rejects.toThrow('404');
    });

    test('is paused by a further attempt when its processes did not freeze in time', async () => {
      let refusals = 3;
      const socketPath = join(makeFolder(), 'engine.sock');
      const relay = await openEngineRelay(socketPath, SOCKET, ({ url }, answer) => {
        if (!url!.endsWith('/pause') || refusals === 0) return;
        refusals -= 1;
        answer.writeHead(500, { 'content-type': 'application/json' });
        answer.end(
          '{"message":"Cannot pause container: OCI runtime pause failed: unable to freeze: unknown"}',
        );
      });
      const engine = new Docker({ socketPath });
      const images = new Images(engine, architecture, undefined);
      const own = new DiskCaptures({ docker: engine, untimed: engine, instanceId, images });
      const ids = { orgId: inside.client.org.id, snapshotId: newId(), sandboxId: id };
      let paused = '';
      const admit = async () => void (paused = await state());
      await own.capture({ ...ids, admit }, new AbortController().signal);
      expect([refusals, paused, await state()]).toEqual([0, 'paused', 'running']);
      expect(await own.remove(ids.snapshotId)).toBe(true);
      relay.close();
    });

    test('runs again after a process that was killed, and can be captured', async () => {
      await container.pause();
      await captures.takeOver();
      expect(await state()).toBe('running');
      expect((await capturing(async () => {}))['error']).toBeNull();
    });
  });

  test('the sweep removes the images of interrupted captures, and keeps an image that an operator committed', async () => {
    const id = await inside.start('interrupted');
    const { id: containerId } = (await containerOf(id))!;
    const container = docker.getContainer(containerId);
    const comment = 'a capture of Sandkeep that is not a snapshot yet';
    await container.commit({ repo: 'sandkeep/capture', tag: 'left', comment });
    await container.commit({ comment });
    const { Id: operators } = (await container.commit({ repo: 'operator-image', tag: '1' })) as {
      Id: string;
    };
    const { snapshots } = inside.service.runtime;
    await snapshots!.sweep();
    const left = (await imagesOf()).filter(
      ({ RepoTags }) => !RepoTags?.some((name) => name.startsWith('sandkeep/snapshot:')),
    );
    expect(left.map(({ Id }) => Id)).toEqual([operators]);
    await docker.getImage('operator-image:1').remove();
  });

  test('the sweep removes commits of earlier attempts during a capture, and not the commit of the capture', async () => {
    // The sweep of the service knows nothing of this installation.
    const other = randomUUID();
    const ids = { orgId: newId(), snapshotId: newId(), sandboxId: newId() };
    const container = await docker.createContainer({
      Image: IMAGE,
      Cmd: ['sleep', '600'],
      Labels: { 'dev.sandkeep.instance': other, 'dev.sandkeep.sandbox': ids.sandboxId },
    });
    await container.start();
    const commit = async (options: object) =>
      container.commit({ comment: 'a capture of Sandkeep that is not a snapshot yet', ...options });
    const commits = async () => {
      const images = await docker.listImages({ filters: { label: [`dev.sandkeep.instance=${other}`] } });
      return images.filter(({ Labels }) => Labels['dev.sandkeep.sandbox'] === ids.sandboxId);
    };
    const found: [string, number][] = [];
    const socketPath = join(makeFolder(), 'engine.sock');
    const relay = await openEngineRelay(socketPath, SOCKET, async ({ method, url }) => {
      const step = /\/commit\?|\/images\/load|^DELETE .*\/images\//.exec(`${method} ${url}`)?.[0];
      if (step === undefined) return;
      // The engine completes the commits of killed processes when it likes, and a name moves to the last one.
      await commit({});
      await commit({ repo: 'sandkeep/capture', tag: ids.snapshotId });
      await own.sweep();
      found.push([step.replace(/^DELETE .*/, 'DELETE'), (await commits()).length]);
    });
    const engine = new Docker({ socketPath });
    const images = new Images(engine, architecture, undefined);
    const own = new DiskCaptures({ docker, untimed: engine, instanceId: other, images });
    try {
      await own.capture(ids, new AbortController().signal);
      expect(found).toEqual([
        ['/commit?', 0],
        ['/images/load', 1],
        ['DELETE', 1],
      ]);
      expect(await commits()).toEqual([]);
      expect(await own.remove(ids.snapshotId)).toBe(true);
    } finally {
      relay.close();
      await container.remove({ force: true });
      await own.sweep();
    }
  });

  test('"uninstall" takes the images of snapshots and of interrupted captures, and no commit of an operator', async () => {
    const { body } = await inside.client.get('/v1/snapshots/by-name/first');
    // The operator gave it a second name, which stays.
    const snapshot = docker.getImage(`sandkeep/snapshot:${body.id}`);
    await snapshot.tag({ repo: 'operator-snapshot', tag: '1' });
    const { lines } = await findRemains(SOCKET, instanceId);
    expect(lines).toContain(`image      sandkeep/snapshot:${body.id} (a snapshot of a sandbox)`);
    expect(lines.join('\n')).not.toContain('operator-snapshot');
    await docker.getImage('operator-snapshot:1').remove();

    // The sweep of this installation would remove the first.
    const other = randomUUID();
    const container = docker.getContainer((await containerOf(body.sandbox_id))!.id);
    const commit = async (options: object) => {
      const changes = [`LABEL dev.sandkeep.instance=${other}`];
      return ((await container.commit({ ...options, changes } as object)) as { Id: string }).Id;
    };
    const left = await commit({ comment: 'a capture of Sandkeep that is not a snapshot yet' });
    const operators = [await commit({}), await commit({ comment: 'before the upgrade' })];
    const remains = await findRemains(SOCKET, other);
    expect(remains.lines.filter((line) => line.includes('snapshot'))).toEqual([
      `image      ${left} (a snapshot of a sandbox)`,
    ]);
    for (const id of operators) expect(remains.lines.join('\n')).not.toContain(id);
    // Not by "remove", which would take shared objects that another test is about to use.
    for (const id of [left, ...operators]) await docker.getImage(id).remove();
  });
});
