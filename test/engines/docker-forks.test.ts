import { afterAll, beforeAll, expect, test } from 'vitest';
import { readInstance } from '../../src/db/instance-queries.js';
import { containerOf, describeDocker, docker } from '../support/docker.js';
import { startInside, type Inside } from '../support/inside.js';
import { until } from '../support/polling.js';
import { capture, forked } from '../support/snapshots.js';

const SECRET = 'a-value-that-no-copy-may-have';

describeDocker('forks of containers', () => {
  let inside: Inside;
  let instanceId: string;
  beforeAll(async () => {
    inside = await startInside({ settings: { volumePurgeAfterMs: 0 } });
    ({ id: instanceId } = await readInstance(inside.service.ctx.pool));
  });
  afterAll(async () => {
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
  /** Makes copies, and returns their ids when they run. */
  const copy = async (id: string, request: object) => {
    const { body, text } = await inside.client.post(`/v1/sandboxes/${id}/fork`, request);
    expect(body.status, text).toBe('queued');
    const operation = await forked(inside.client, body.id);
    expect([operation['status'], operation['error']]).toEqual(['succeeded', null]);
    const sandboxes = await until(
      async () => (await inside.client.get(`/v1/fork-operations/${body.id}`)).body.sandboxes,
      (found) => found.every(({ status }: { status: string }) => status !== 'starting'),
      60_000,
    );
    expect(sandboxes.map(({ status }: { status: string }) => status)).toEqual(sandboxes.map(() => 'running'));
    const ids: string[] = sandboxes.map((one: { id: string }) => one.id);
    return { id: operation['id'] as string, ids, size: operation['size_bytes'] as number };
  };
  /** The images of the service that come from containers, by their names. */
  async function imagesOf(): Promise<string[]> {
    const images = await docker.listImages({ filters: { label: [`dev.sandkeep.instance=${instanceId}`] } });
    return images.flatMap(({ RepoTags }) => RepoTags ?? ['<none>']);
  }
  const addressOf = async (id: string) => {
    const { State, NetworkSettings } = await docker.getContainer((await containerOf(id))!.id).inspect();
    return `${State.Pid} ${JSON.stringify(NetworkSettings.Networks)}`;
  };

  test('each copy of a running sandbox has its files, an identity of its own, and no secret', async () => {
    const source = await inside.start('source', {
      env: [
        { key: 'TOKEN', value: SECRET, secret: true },
        { key: 'PLAIN', value: 'kept' },
      ],
    });
    await exec(source, 'dd if=/dev/urandom of=/srv/data bs=65536 count=32 && rm /bin/tail && sync');
    const sum = await exec(source, 'busybox md5sum /srv/data');
    const { id, ids, size } = await copy(source, { count: 4 });
    expect(ids.length).toBe(4);
    expect(size).toBeGreaterThanOrEqual(2 * 1024 ** 2);
    // One image for all of them.
    await until(imagesOf, (names) => names.join() === `sandkeep/snapshot:${id}`);
    const seen = new Set<string>();
    for (const one of [source, ...ids]) {
      expect(await exec(one, 'busybox md5sum /srv/data')).toBe(sum);
      seen.add((await exec(one, 'busybox hostname')).trim());
      seen.add(await addressOf(one));
    }
    expect(seen.size).toBe(10);
    for (const one of ids) {
      expect(await exec(one, 'test -e /bin/tail || echo gone')).toBe('gone\n');
      const environment = await exec(one, 'env');
      expect(environment).toContain('PLAIN=kept');
      expect(environment).not.toMatch(/TOKEN/);
      await exec(one, `echo ${one} > /srv/own`);
    }
    for (const one of ids) expect(await exec(one, 'cat /srv/own')).toBe(`${one}\n`);
    expect(await exec(source, 'test -e /srv/own || echo none')).toBe('none\n');
  });

  test('a stopped sandbox and a copy are copied, and the copies outlive both', async () => {
    const source = await inside.start('rested');
    await exec(source, 'echo first > /srv/first');
    await inside.client.post(`/v1/sandboxes/${source}/stop`, undefined, { wait_for: 'stopped' });
    const [one] = (await copy(source, { count: 1 })).ids;
    await exec(one!, 'echo second > /srv/second');
    const { ids } = await copy(one!, { count: 2, names: ['a', 'b'] });
    const snapshot = await capture(inside.client, ids[0]!, 'of-a-copy');
    expect(snapshot['status']).toBe('succeeded');
    for (const gone of [source, one!]) await inside.client.delete(`/v1/sandboxes/${gone}`);
    for (const left of ids) {
      await inside.client.post(`/v1/sandboxes/${left}/restart`, undefined, { wait_for: 'running' });
      expect(await exec(left, 'cat /srv/first /srv/second')).toBe('first\nsecond\n');
    }
    await inside.client.delete('/v1/snapshots/by-name/of-a-copy');
  });

  test('copies share a volume when the request says so', async () => {
    await inside.client.post('/v1/volumes', { name: 'shared' });
    const source = await inside.start('mounting', {
      mounts: [{ type: 'named', name: 'shared', guest: '/mnt' }],
    });
    const { ids } = await copy(source, { count: 2, volumes: 'share' });
    await exec(ids[0]!, 'echo together > /mnt/file');
    expect(await exec(ids[1]!, 'cat /mnt/file')).toBe('together\n');
    expect(await exec(source, 'cat /mnt/file')).toBe('together\n');
  });

  test('a stop of the source during the capture leaves no copy and no image', async () => {
    const source = await inside.start('stopped-meanwhile');
    await exec(source, 'dd if=/dev/urandom of=/srv/data bs=1048576 count=64 && sync');
    const { body } = await inside.client.post(`/v1/sandboxes/${source}/fork`, { count: 3 });
    await inside.client.post(`/v1/sandboxes/${source}/stop`, undefined, { wait_for: 'stopped' });
    const operation = await forked(inside.client, body.id);
    // The capture may have ended before the stop.
    if (operation['status'] === 'failed') {
      expect([operation['error'].code, operation['sandboxes']]).toEqual(['sandbox_changed', []]);
      await until(imagesOf, (names) => !names.includes(`sandkeep/snapshot:${body.id}`), 60_000);
    } else expect(operation['sandboxes'].length).toBe(3);
  });

  test('the images go with the last copies', async () => {
    const { body } = await inside.client.get('/v1/sandboxes', { limit: 100 });
    for (const { id } of body.data) await inside.client.delete(`/v1/sandboxes/${id}`);
    expect(await until(imagesOf, (names) => names.length === 0, 60_000)).toEqual([]);
  });
});
