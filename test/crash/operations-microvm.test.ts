import { randomBytes } from 'node:crypto';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  exportsDirectory,
  placesIn,
  sandboxesDirectory,
  snapshotsDirectory,
} from '../../src/engines/microvm/places.js';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { makeClient, type Client } from '../support/client.js';
import { layoutFiles } from '../support/image-files.js';
import { describeMicrovm, onMachines } from '../support/microvm/needs.js';
import { IMAGE, importTestImage } from '../support/microvm/service.js';
import { until, untilStatus } from '../support/polling.js';
import { layerOf } from '../support/private-registry.js';
import {
  cleanUp,
  inDatabase,
  kill,
  launch,
  makeFolder,
  ready,
  stop,
  until as untilHolds,
  type Launched,
  type Served,
} from '../support/processes.js';
import { exportOf, imageIn, importTo, packFiles } from '../support/snapshot-archives.js';
import { capture, forked } from '../support/snapshots.js';
import { build, endedBuild, requestBuild } from '../support/templates.js';
import { ageDrafts } from './support/age-drafts.js';
import { ArmedPrograms } from './support/armed-programs.js';
import { unlessCut } from './support/unless-cut.js';

const RUNNING = { start: true, wait_for: 'running', wait_timeout: 120 };
const SMALL = { resources: { vcpus: 1, memory_mib: 192 }, network: { enabled: false } };
const BUILD = { sandbox: JSON.stringify({ ...SMALL, pull_policy: 'never' }) };
const COPIES = 2;
const VOLUME_BYTES = 1024 ** 2;

/** The programs and the database say when a step is reached, so that each kill has its moment on any machine. */
describeMicrovm('forks, builds, imports and exports of virtual machines after a kill -9', () => {
  let folder: string;
  let programs: ArmedPrograms;
  let service: Served;
  let client: Client;
  let key: string;
  let orgId: string;
  let source: string;
  beforeAll(async () => {
    folder = makeFolder();
    programs = new ArmedPrograms(folder);
    await serve();
    await importTestImage(dataDir());
    orgId = (await inDatabase(dataDir(), async (database) => database.query('select id from orgs'))).rows[0]
      .id;
    const { body: volume } = await client.post('/v1/volumes', { name: 'data' });
    const put = await fetch(`${service.url}/v1/volumes/${volume.id}/files/content?path=/large`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${key}` },
      body: new Uint8Array(randomBytes(VOLUME_BYTES)),
    });
    expect(put.status, await put.text()).toBe(200);
    const { body, text } = await client.post(
      '/v1/sandboxes',
      {
        name: 'source',
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        mounts: [{ type: 'named', name: 'data', guest: '/data' }],
        ...SMALL,
      },
      RUNNING,
    );
    expect(body.status, text).toBe('running');
    source = body.id;
    await exec(source, 'head -c 300000 /dev/urandom > /srv/own; chown 12:34 /data/large');
  });
  afterAll(async () => {
    await cleanUp(folder);
  });

  const dataDir = () => join(folder, 'data');
  const engine = () => join(dataDir(), 'microvm');
  const volumes = () => join(dataDir(), 'volumes', orgId);

  function launchService(): Launched {
    ageDrafts(snapshotsDirectory(engine()));
    const fixed = ['--json', '--port', '0', '--preview-host', 'none', '--log-level', 'error'];
    const options = ['--default-disk-mib', '256', '--volume-purge-hours', '0', '--data-dir', dataDir()];
    return launch(['serve', ...fixed, ...onMachines(), ...options], { under: programs.under });
  }

  async function serve(): Promise<void> {
    service = await ready(launchService(), dataDir());
    key ??= service.firstKey!;
    client = makeClient(service.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
  }

  /** After a kill, which may be under way. */
  async function serveAgain(): Promise<void> {
    await service.exited;
    await serve();
  }

  async function exec(id: string, script: string): Promise<string> {
    const { body, text } = await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', script] });
    expect(body.exit_code, text).toBe(0);
    return body.stdout;
  }

  async function rowsOf<T extends object>(query: string, values: unknown[] = []): Promise<T[]> {
    return inDatabase(
      dataDir(),
      async (database) => (await database.query<T & Record<string, unknown>>(query, values)).rows,
    );
  }

  const namesIn = (directory: string) => (existsSync(directory) ? readdirSync(directory).toSorted() : []);
  const idsOf = (rows: { id: string }[]) => rows.map(({ id }) => id).toSorted();

  /** Those that callers find, without the host volume. */
  async function ownVolumes(): Promise<string[]> {
    const { body } = await client.get('/v1/volumes');
    return idsOf(body.filter(({ kind }: { kind: string }) => kind === 'managed'));
  }

  /**
   * The disk has the snapshots and volumes that callers find, the source, what `beside` names, and nothing half made.
   * `snapshots`: their sandboxes need them, and no caller finds them. A killed import ends half a minute later: the
   * last test waits for it.
   */
  async function expectWhole(
    beside: { sandboxes: string[]; snapshots: string[] } = { sandboxes: [], snapshots: [] },
  ): Promise<void> {
    const sandboxes = [source, ...beside.sandboxes].toSorted();
    await until(
      async () => {
        const rows = await rowsOf<{ id: string; is_lost: boolean }>(
          `select id, status = 'in_progress' and sandbox_id is null as is_lost from snapshots
           where removed_at is null and status <> 'failed'`,
        );
        const lost = idsOf(rows.filter(({ is_lost }) => is_lost));
        const snapshots = idsOf(rows.filter(({ is_lost }) => !is_lost));
        const runs = await rowsOf<{ id: string }>(
          'select sandbox_id as id from runs where end_reason is null',
        );
        return {
          sandboxes: [namesIn(sandboxesDirectory(engine())), sandboxes],
          snapshots: [
            namesIn(snapshotsDirectory(engine())).filter((name) => !lost.includes(name)),
            [...snapshots, ...beside.snapshots].toSorted(),
          ],
          volumes: [namesIn(volumes()), await ownVolumes()],
          machines: [namesIn(exportsDirectory(engine())), []],
          uploads: [namesIn(join(dataDir(), 'imports')), []],
          runs: [idsOf(runs), sandboxes],
        };
      },
      (all) => Object.values(all).every(([found, wanted]) => String(found) === String(wanted)),
    );
    // Nothing else is charged.
    const kept = new Set([...namesIn(snapshotsDirectory(engine())), ...namesIn(volumes())]);
    await until(
      async () => rowsOf<{ id: string }>('select volume_id as id from accruals where to_at > now()'),
      (charged) => charged.every(({ id }) => kept.has(id)),
    );
  }

  /**
   * Kills the service when its engine has done its part, and the store does not know it: the operation is locked
   * meanwhile. The program of the engine waits for that.
   */
  async function killBeforeRecord(
    program: Parameters<ArmedPrograms['release']>[0],
    find: () => Promise<string>,
    isDone: (id: string) => boolean,
  ): Promise<void> {
    await until(
      async () => Promise.resolve(programs.isWaiting(program)),
      (waits) => waits,
    );
    const id = await find();
    await inDatabase(dataDir(), async (database) => {
      await database.query('begin');
      await database.query('select from snapshots where id = $1 for update', [id]);
      programs.release(program);
      await until(
        async () => Promise.resolve(isDone(id)),
        (done) => done,
      );
      kill('SIGKILL', service.pid);
      await service.exited;
    });
  }

  /** The last test has their ends. */
  test('the service dies in each step of an import', async () => {
    const archive = packFiles(layoutFiles([await layerOf({ file: 'x'.repeat(300_000) })]));
    for (const moment of IMPORTS) {
      programs.arm('qemu-img', moment);
      const sent = importTo(client, archive, { name: moment }).catch(unlessCut);
      if (moment === 'waits') {
        const named = () => rowsOf<{ id: string }>('select id from snapshots where name = $1', [moment]);
        const isKept = (id: string) => existsSync(join(snapshotsDirectory(engine()), id));
        await killBeforeRecord('qemu-img', async () => (await named())[0]!.id, isKept);
      }
      expect(await sent).toBeUndefined();
      await serveAgain();
    }
  });

  test('the service dies in each step of a fork with its volumes: the fork is completed once', async () => {
    programs.arm('cp', 'middle');
    const { body, text } = await client.post(`/v1/sandboxes/${source}/fork`, {
      count: COPIES,
      volumes: 'copy',
      name_prefix: 'copy',
    });
    expect(body.status, text).toBe('queued');
    await service.exited;

    // All volumes are filled.
    programs.arm('cp', 'waits');
    await serve();
    const filled = idsOf(await rowsOf('select id from volumes where fork_id = $1', [body.id]));
    expect(filled).toHaveLength(COPIES);
    const isFull = (id: string) => sizeOf(join(volumes(), id, 'data/large')) === VOLUME_BYTES;
    await killBeforeRecord(
      'cp',
      async () => Promise.resolve(body.id),
      () => filled.every(isFull),
    );

    // The disk of a copy is made, and the service does not know it.
    programs.arm('qemu-img', 'after');
    await launchService().exited;
    await serve();

    expect(await forked(client, body.id)).toMatchObject({ status: 'succeeded', error: null });
    const copies: string[] = body.sandboxes.map(({ id }: { id: string }) => id);
    const sum = await exec(source, 'md5sum < /srv/own; md5sum < /data/large; stat -c "%u %g" /data/large');
    for (const id of copies) {
      await untilStatus(client, id, 'running');
      expect(await exec(id, 'md5sum < /srv/own; md5sum < /data/large; stat -c "%u %g" /data/large')).toBe(
        sum,
      );
      const started = await client.get('/v1/events', { resource_id: id, event_type: 'sandbox_started' });
      expect(started.body.data).toHaveLength(1);
    }
    for (const id of await ownVolumes()) {
      const made = await client.get('/v1/events', { resource_id: id, event_type: 'volume_created' });
      expect(made.body.data).toHaveLength(1);
    }
    await expectWhole({ sandboxes: copies, snapshots: [body.id] });
    // The next test finds nothing of them.
    for (const id of copies) await client.delete(`/v1/sandboxes/${id}`);
  });

  test.each<[moment: string, arm: () => void]>([
    ['the first disk is made', () => programs.arm('qemu-img', 'after')],
    ['the disk is captured', () => programs.arm('cp', 'middle')],
    ['a result is kept, and the next step begins', () => programs.arm('cp', 'arms')],
  ])(
    'the service dies in a build when %s: it ends as failed, and nothing half made stays',
    async (moment, arm) => {
      arm();
      const { body, text } = await requestBuild(client, 'killed:1', FILE(moment), BUILD);
      expect(body.status, text).toBe('queued');
      await serveAgain();
      const ended = await endedBuild(client, body.id);
      expect([ended['status'], ended['error'].code]).toEqual(['failed', 'interrupted']);
      await expectWhole();
      expect(await rowsOf('select from template_contexts')).toEqual([]);
    },
  );

  test('a later build begins with what the killed one kept', async () => {
    const built = await build(client, 'killed:1', FILE('a result is kept, and the next step begins'), BUILD);
    expect([built['status'], built['error'], built['steps_cached']]).toEqual(['succeeded', null, 1]);
    await expectWhole();
    await client.delete(`/v1/templates/${built['id']}`);
    await expectWhole();
  });

  test('the service dies in an export while the machine reads the disk: nothing stays of it', async () => {
    expect((await capture(client, source, 'kept'))['error']).toBeNull();
    const sent = exportOf(client, 'by-name/kept').catch(unlessCut);
    const machines = exportsDirectory(engine());
    let isOver = false;
    void sent.finally(() => (isOver = true));
    const reads = async () => {
      const name = namesIn(machines).find((one) => one.startsWith('export-'));
      const record = name === undefined ? undefined : await readRecord(placesIn(join(machines, name)));
      return record?.readyAt !== undefined;
    };
    // It reads for a moment. A quick machine may have read everything before.
    await untilHolds('the machine reads', async () => isOver || reads(), undefined, 5);
    kill('SIGKILL', service.pid);
    const acknowledged = (await sent) === undefined ? 0 : 1;
    await serveAgain();
    await expectWhole();
    const exported = async () =>
      (await client.get('/v1/events', { event_type: 'snapshot_exported' })).body.data.length as number;
    const before = await exported();
    expect([0, 1]).toContain(before);
    expect(before).toBeGreaterThanOrEqual(acknowledged);

    const { status, bytes } = await exportOf(client, 'by-name/kept');
    expect(status).toBe(200);
    expect((await imageIn(bytes)).manifest.layers).toHaveLength(1);
    expect(await exported()).toBe(before + 1);
    await client.delete('/v1/snapshots/by-name/kept');
    await expectWhole();
  });

  test('the killed imports have failed, and their names are free', async () => {
    const { body } = await until(
      async () => client.get('/v1/snapshot-operations', { limit: 100 }),
      ({ body: all }) => all.data.every((one: { completed_at: unknown }) => one.completed_at !== null),
    );
    for (const name of IMPORTS) {
      const found = body.data.filter((one: { name: string }) => one.name === name);
      expect(found).toMatchObject([{ status: 'failed', error: { code: 'interrupted' } }]);
      const archive = packFiles(layoutFiles([await layerOf({ file: name })]));
      const again = await importTo(client, archive, { name });
      expect(again.status, again.text).toBe(200);
    }
    await until(
      async () => (await client.get('/v1/quotas')).body.snapshots,
      (snapshots) => snapshots === IMPORTS.length,
    );
    await expectWhole();
    expect(await stop(service)).toBe(0);
  });
});

/** The disk of an import is made: the engine has no snapshot of it yet, or the store does not know that it has. */
const IMPORTS = ['after', 'waits'] as const;

function sizeOf(path: string): number {
  return statSync(path, { throwIfNoEntry: false })?.size ?? 0;
}

const FILE = (moment: string) => `FROM ${IMAGE}\nRUN echo "${moment}" > /made\nRUN cat /made > /copied\n`;
