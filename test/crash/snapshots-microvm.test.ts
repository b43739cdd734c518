import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sandboxesDirectory, snapshotsDirectory } from '../../src/engines/microvm/places.js';
import { sleep } from '../../src/lib/sleep.js';
import { makeClient, type Client } from '../support/client.js';
import { describeMicrovm, onMachines } from '../support/microvm/needs.js';
import { IMAGE, importTestImage } from '../support/microvm/service.js';
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
import { ended, fromSnapshot, typesOf } from '../support/snapshots.js';
import { ageDrafts } from './support/age-drafts.js';
import { ArmedPrograms } from './support/armed-programs.js';
import { unlessCut } from './support/unless-cut.js';

const RUNNING = { wait_for: 'running', wait_timeout: 120 };
const SMALL = { resources: { vcpus: 1, memory_mib: 192 }, network: { enabled: false } };

describeMicrovm('snapshots of virtual machines after a kill -9', () => {
  let folder: string;
  let programs: ArmedPrograms;
  let service: Served;
  let client: Client;
  let key: string;
  let source: string;

  beforeAll(async () => {
    folder = makeFolder();
    programs = new ArmedPrograms(folder);
    await serve();
    await importTestImage(service.dataDir);
    const image = { type: 'oci', reference: IMAGE };
    const request = { name: 'source', image, pull_policy: 'never', ...SMALL };
    const { body, text } = await client.post('/v1/sandboxes', request, { start: true, ...RUNNING });
    expect(body.status, text).toBe('running');
    source = body.id;
    await exec('head -c 3000000 /dev/urandom > /srv/data');
  });
  afterAll(async () => {
    await cleanUp(folder);
  });

  const engine = () => join(service.dataDir, 'microvm');

  async function serve(): Promise<void> {
    const dataDir = join(folder, 'data');
    ageDrafts(snapshotsDirectory(join(dataDir, 'microvm')));
    const fixed = ['--json', '--port', '0', '--preview-host', 'none', '--log-level', 'error'];
    const args = ['serve', ...fixed, ...onMachines(), '--default-disk-mib', '256', '--data-dir', dataDir];
    service = await ready(launch(args, { under: programs.under }), dataDir);
    key ??= service.firstKey!;
    client = makeClient(service.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
  }

  /** Arms the program, carries out the work, and starts the service again after its end. */
  async function killAt(
    [program, moment]: Parameters<ArmedPrograms['arm']>,
    work: () => Promise<unknown>,
  ): Promise<void> {
    programs.arm(program, moment);
    const working = work().catch(unlessCut);
    await service.exited;
    await working;
    await serve();
  }

  async function exec(script: string, id = source): Promise<string> {
    const { body, text } = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', script] });
    expect(body.exit_code, text).toBe(0);
    return body.stdout;
  }

  async function listed(): Promise<string> {
    const { body } = await client.get('/v1/snapshots', { include: 'deleted' });
    return (body.data as { id: string }[])
      .map(({ id }) => id)
      .toSorted()
      .join();
  }

  const stored = () =>
    existsSync(snapshotsDirectory(engine()))
      ? readdirSync(snapshotsDirectory(engine())).toSorted().join()
      : '';

  async function charged(): Promise<string> {
    return inDatabase(service.dataDir, async (session) => {
      const { rows } = await session.query<{ id: string }>(
        `select distinct s.id from snapshots s join accruals a on a.org_id = s.org_id and a.volume_id = s.id
         where a.to_at > now() order by s.id`,
      );
      return rows.map(({ id }) => id).join();
    });
  }

  /** The engine has the snapshots that callers find and nothing half made, and exactly the ready ones are charged. */
  async function expectWhole(): Promise<void> {
    const wanted = await listed();
    await until(
      async () => Promise.resolve(stored()),
      (names) => names === wanted,
    );
    const { body } = await client.get('/v1/snapshots');
    const ready = (body.data as { id: string }[])
      .map(({ id }) => id)
      .toSorted()
      .join();
    await until(charged, (ids) => ids === ready);
  }

  test.each(['before', 'middle', 'after'] as const)(
    'the service dies %s the copy of a disk: the sandbox runs on, and the capture is completed once',
    async (moment) => {
      let id = '';
      await killAt(['cp', moment], async () => {
        const { body } = await client.post('/v1/snapshots', {
          kind: 'disk',
          sandbox_id: source,
          name: moment,
        });
        id = body.id;
      });
      expect(await exec('echo alive')).toBe('alive\n');
      expect(await ended(client, id)).toMatchObject({ status: 'succeeded', error: null });
      expect(await typesOf(client, id)).toEqual(['snapshot_requested', 'snapshot_created']);
      await expectWhole();
    },
  );

  test('the service dies after the disk of a sandbox is made: it starts once, with the files of the snapshot', async () => {
    const request = fromSnapshot('made', 'after', SMALL);
    await killAt(['qemu-img', 'after'], async () => client.post('/v1/sandboxes', request, { start: true }));
    const { body } = await until(
      async () => client.get('/v1/sandboxes/by-name/made'),
      (answer) => answer.body.status === 'running',
      120_000,
    );
    expect(await exec('md5sum < /srv/data', body.id)).toBe(await exec('md5sum < /srv/data'));
    const started = await client.get('/v1/events', { resource_id: body.id, event_type: 'sandbox_started' });
    expect(started.body.data).toHaveLength(1);
    await client.delete(`/v1/sandboxes/${body.id}`);
    await until(
      async () => Promise.resolve(readdirSync(sandboxesDirectory(engine()))),
      (names) => names.join() === source,
    );
  });

  test('the service dies while snapshots are removed: nothing stays of what is deleted', async () => {
    for (const wait of [0, 30]) {
      const { body } = await client.get('/v1/snapshots');
      const { id } = body.data[0];
      await client.delete(`/v1/snapshots/${id}`);
      await inDatabase(service.dataDir, async (session) =>
        session.query(`update snapshots set purge_at = now() where id = $1`, [id]),
      );
      // A pass follows within a second.
      await client.get('/v1/snapshots');
      await sleep(wait);
      kill('SIGKILL', service.pid);
      await service.exited;
      await serve();
      await until(
        async () => (await client.get(`/v1/snapshots/${id}`)).status,
        (status) => status === 404,
      );
      await expectWhole();
    }
    const { body } = await client.get('/v1/snapshots');
    expect(body.data).toHaveLength(1);
    await client.delete(`/v1/snapshots/${body.data[0].id}`);
    await inDatabase(service.dataDir, async (session) =>
      session.query(`update snapshots set purge_at = now()`),
    );
    await client.delete(`/v1/sandboxes/${source}`);
    await expectWhole();
    await until(
      async () => (await client.get('/v1/quotas')).body,
      (quotas) => quotas.snapshots === 0 && quotas.snapshot_gib_used === 0,
    );
    expect(await stop(service)).toBe(0);
  });
});
