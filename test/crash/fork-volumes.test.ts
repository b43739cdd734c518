import { spawnSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeClient, type Client } from '../support/client.js';
import { describeDocker, docker, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { until } from '../support/polling.js';
import {
  cleanUp,
  inDatabase,
  kill,
  launch,
  makeFolder,
  ready,
  stop,
  type Served,
} from '../support/processes.js';
import { forked, RUNNING } from '../support/snapshots.js';

const MIB = 1024 ** 2;
const VOLUME_MIB = 96;
const COPIES = 2;

interface Row {
  id: string;
  name: string;
  status: string;
  removed: boolean;
}

describeDocker('volumes of a fork after a kill -9', () => {
  let folder: string;
  let service: Served;
  let key: string;
  let client: Client;
  let orgId: string;
  let instance: string;
  let source: string;
  let sum: string;
  beforeAll(async () => {
    makeImage();
    folder = makeFolder();
    await serve();
    [orgId, instance] = await inDatabase(folder, async (database) => {
      const found = await database.query<{ org: string; instance: string }>(
        `select o.id as org, i.id as instance from orgs o, instance i`,
      );
      return [found.rows[0]!.org, found.rows[0]!.instance];
    });
    await client.post('/v1/volumes', { name: 'data' });
    source = await start('source');
    sum = await exec(
      source,
      `head -c ${VOLUME_MIB * MIB} /dev/urandom > /mnt/large && mkdir /mnt/deep && echo x > /mnt/deep/file && busybox chown 12:34 /mnt/deep/file && busybox md5sum /mnt/large`,
    );
  });
  afterAll(async () => {
    await stop(service);
    const filters = { label: [`dev.sandkeep.instance=${instance}`] };
    for (const { Id } of await docker.listContainers({ all: true, filters }))
      await docker.getContainer(Id).remove({ force: true });
    for (const { Id } of await docker.listImages({ filters }))
      await docker.getImage(Id).remove({ force: true });
    await cleanUp(folder);
  });

  async function serve(): Promise<void> {
    const engine = ['--runtime', 'docker', '--docker-socket', SOCKET, '--docker-network', 'none'];
    const fixed = ['--json', '--port', '0', '--preview-host', 'none', '--log-level', 'warn'];
    service = await ready(launch(['serve', ...fixed, '--data-dir', folder, ...engine]), folder);
    key ??= service.firstKey!;
    client = makeClient(service.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
  }

  async function start(name: string): Promise<string> {
    const request = {
      name,
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      resources: { vcpus: 1, memory_mib: 64 },
      runtime: { cmd: ['sleep', '100000'] },
      mounts: [{ type: 'named', name: 'data', guest: '/mnt' }],
    };
    const { body, text } = await client.post('/v1/sandboxes', request, RUNNING);
    expect(body.status, text).toBe('running');
    return body.id;
  }

  async function exec(id: string, script: string): Promise<string> {
    const { body, text } = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', script] });
    expect(body.exit_code, text).toBe(0);
    return body.stdout as string;
  }

  const rowsOf = async (condition = 'true'): Promise<Row[]> =>
    inDatabase(folder, async (database) => {
      const { rows } = await database.query<Row & Record<string, unknown>>(
        `select id, name, status, removed_at is not null as removed from volumes
         where kind = 'managed' and ${condition} order by id`,
      );
      return rows;
    });
  const pathOf = (id: string) => join(folder, 'volumes', orgId, id, 'data');
  /** A volume without a directory has 0 MiB. A repeated fill begins anew, so the directory may go at any moment. */
  const mibOf = (id: string) =>
    Number(spawnSync('du', ['-sm', pathOf(id)], { encoding: 'utf8' }).stdout.split('\t')[0]);

  /** Exactly the volumes that callers find have data, are charged and have one event. */
  async function expectWhole(): Promise<void> {
    const { body } = await client.get('/v1/volumes');
    const listed: string[] = body
      .filter(({ kind }: any) => kind === 'managed')
      .map(({ id }: any) => id)
      .toSorted();
    expect(await rowsOf('removed_at is null')).toHaveLength(listed.length);
    await until(
      () => Promise.resolve(readdirSync(join(folder, 'volumes', orgId)).filter((name) => name.length === 36)),
      (names) => names.toSorted().join() === listed.join(),
      60_000,
    );
    const charged = await inDatabase(folder, async (database) => {
      const { rows } = await database.query<{ id: string }>(
        `select distinct v.id from volumes v join accruals a on a.org_id = v.org_id and a.volume_id = v.id
         where a.to_at > now() and v.copied_from is null order by v.id`,
      );
      return rows.map(({ id }) => id);
    });
    // The source is measured at its turn.
    for (const id of charged) expect(listed).toContain(id);
    for (const id of listed) {
      const events = await client.get('/v1/events', { resource_id: id, event_type: 'volume_created' });
      expect(events.body.data).toHaveLength(1);
    }
    expect(
      await docker.listContainers({
        filters: { label: [`dev.sandkeep.instance=${instance}`], status: ['paused'] },
      }),
    ).toEqual([]);
  }

  test.each<[string, (ids: string[]) => boolean]>([
    ['at once', () => true],
    ['while the first volume is filled', (ids) => ids.some((id) => mibOf(id) > 8)],
    ['while the second volume is filled', (ids) => ids.every((id) => mibOf(id) > 8)],
    ['when the last volume is full', (ids) => ids.every((id) => mibOf(id) >= VOLUME_MIB)],
  ])('the service dies %s: the fork is completed once', async (moment, isReached) => {
    const request = { count: COPIES, volumes: 'copy', name_prefix: moment.replaceAll(' ', '-') };
    const { body, text } = await client.post(`/v1/sandboxes/${source}/fork`, request);
    expect(body.status, text).toBe('queued');
    const ids = (await rowsOf(`fork_id = '${body.id}'`)).map(({ id }) => id);
    await until(
      async () => {
        // A quick machine may have completed the fork before.
        const open = await rowsOf(`fork_id = '${body.id}'`);
        return open.length === 0 || isReached(ids);
      },
      (reached) => reached,
      60_000,
    );
    kill('SIGKILL', service.pid);
    await service.exited;
    await serve();
    expect(await forked(client, body.id)).toMatchObject({ status: 'succeeded', error: null });
    for (const { id } of body.sandboxes) {
      await until(
        async () => (await client.get(`/v1/sandboxes/${id}`)).body.status,
        (status) => status === 'running',
        60_000,
      );
      expect(await exec(id, 'busybox md5sum /mnt/large')).toBe(sum);
      expect(await exec(id, 'busybox stat -c "%u %g" /mnt/deep/file; ls /mnt')).toBe('12 34\ndeep\nlarge\n');
    }
    await expectWhole();
    for (const { id } of body.sandboxes) await client.delete(`/v1/sandboxes/${id}`);
  });

  test('the source is deleted while the service is dead in a copy: nothing of the fork stays', async () => {
    const doomed = await start('doomed');
    const { body } = await client.post(`/v1/sandboxes/${doomed}/fork`, { count: COPIES, volumes: 'copy' });
    const ids = (await rowsOf(`fork_id = '${body.id}'`)).map(({ id }) => id);
    await until(
      () => Promise.resolve(ids.length === 0 || ids.some((id) => mibOf(id) > 1)),
      (reached) => reached,
      60_000,
    );
    const deleting = client.delete(`/v1/sandboxes/${doomed}`);
    await deleting;
    kill('SIGKILL', service.pid);
    await service.exited;
    await serve();
    const operation = await forked(client, body.id);
    // The copies may have been complete before the deletion.
    if (operation['status'] === 'failed') {
      expect(operation).toMatchObject({ error: { code: 'sandbox_changed' }, sandboxes: [] });
      expect((await rowsOf(`fork_id = '${body.id}'`)).every(({ removed }) => removed)).toBe(true);
      for (const { id } of body.sandboxes) expect((await client.get(`/v1/sandboxes/${id}`)).status).toBe(404);
    }
    await expectWhole();
  });
});
