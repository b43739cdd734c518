import type { IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sleep } from '../../src/lib/sleep.js';
import { makeClient, type Client } from '../support/client.js';
import { describeDocker, IMAGE, makeImage } from '../support/docker.js';
import { openEngineRelay, type EngineRelay } from '../support/engine-relay.js';
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
import { ended, fromSnapshot, RUNNING, typesOf } from '../support/snapshots.js';
import { openOwnEngine, type OwnEngine } from './support/docker-engine.js';
import { unlessCut } from './support/unless-cut.js';

/** A request to the engine. The service is killed before the engine gets it, or when the engine has carried it out. */
interface Moment {
  when: 'before' | 'after';
  request: RegExp;
}

interface Armed extends Moment {
  act: () => void;
  /** The engine does not get the request. Default: it does. */
  isLost?: boolean;
}

const PAUSE = /^POST \S*\/pause/;
const RESUME = /^POST \S*\/unpause/;
const COMMIT = /^POST \S*\/commit\?/;
const LOAD = /^POST \S*\/images\/load/;
const UNNAME = /^DELETE \S*\/images\/sandkeep\/capture/;
const PURGE = /^DELETE \S*\/images\/sandkeep\/snapshot/;
const CREATE = /^POST \S*\/containers\/create/;
const START = /^POST \S*\/containers\/[^/]+\/start/;

const CAPTURE: [string, Moment][] = [
  ['before the pause', { when: 'before', request: PAUSE }],
  ['after the pause', { when: 'after', request: PAUSE }],
  ['before the commit', { when: 'before', request: COMMIT }],
  ['after the commit', { when: 'after', request: COMMIT }],
  ['before the sandbox is resumed', { when: 'before', request: RESUME }],
  ['after the second image is made', { when: 'after', request: LOAD }],
  ['after the committed image is removed', { when: 'after', request: UNNAME }],
];

describeDocker('snapshots after a kill -9', () => {
  let engine: OwnEngine;
  let relay: EngineRelay;
  let folder: string;
  let socket: string;
  let service: Served;
  let client: Client;
  let key: string;
  let source: string;
  /** The images of the engine without any snapshot. */
  let before: string[];
  let armed: Armed | undefined;

  const fire = (when: Moment['when'], { method, url }: IncomingMessage): Armed | undefined => {
    if (armed?.when !== when || !armed.request.test(`${method} ${url}`)) return undefined;
    const fired = armed;
    armed = undefined;
    fired.act();
    return fired;
  };

  beforeAll(async () => {
    engine = await openOwnEngine();
    makeImage(engine.socket);
    folder = makeFolder();
    socket = join(folder, 'engine.sock');
    relay = await openEngineRelay(
      socket,
      engine.socket,
      (request, answer) => {
        if (fire('before', request)?.isLost) answer.writeHead(500).end();
      },
      (request) => void fire('after', request),
    );
    await serve();
    source = await start('source', { image: { type: 'oci', reference: IMAGE }, pull_policy: 'never' });
    before = await imagesOf();
  });
  afterAll(async () => {
    relay.close();
    await cleanUp(folder);
    await engine.close();
  });

  async function serve(): Promise<void> {
    const runtime = ['--runtime', 'docker', '--docker-socket', socket, '--docker-network', 'none'];
    const options = ['--preview-host', 'none', '--log-level', 'warn'];
    const dataDir = join(folder, 'data');
    service = await ready(
      launch(['serve', '--json', '--port', '0', '--data-dir', dataDir, ...runtime, ...options]),
      dataDir,
    );
    key ??= service.firstKey!;
    client = makeClient(service.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
  }

  async function start(name: string, part: object): Promise<string> {
    const request = {
      name,
      resources: { memory_mib: 32 },
      runtime: { cmd: ['sh', '-c', 'head -c 20000000 /dev/urandom > /srv/data; sleep 1000'] },
      ...part,
    };
    const { body, text } = await client.post('/v1/sandboxes', request, RUNNING);
    expect(body.status, text).toBe('running');
    return body.id;
  }

  /** Kills the service at the moment, and starts it again. `work` may lose its answer. */
  async function killAt(moment: Moment, work: () => Promise<unknown>): Promise<void> {
    armed = { ...moment, act: () => kill('SIGKILL', service.pid), isLost: true };
    const working = work().catch(unlessCut);
    await service.exited;
    await working;
    await serve();
  }

  const ask = async (name: string): Promise<string> => {
    const { body, text } = await client.post('/v1/snapshots', { kind: 'disk', sandbox_id: source, name });
    expect(body.status, text).toBe('queued');
    return body.id;
  };

  async function imagesOf(): Promise<string[]> {
    const images = await engine.docker.listImages({ all: true });
    return images.flatMap(({ Id, RepoTags }) => RepoTags ?? [Id]).toSorted();
  }

  /** The engine has the snapshots that callers find and nothing half made, and exactly they are charged. */
  async function expectWhole(...kept: string[]): Promise<void> {
    const listed = async () => {
      const { body } = await client.get('/v1/snapshots', { include: 'deleted' });
      return (body.data as { id: string }[]).map(({ id }) => id);
    };
    const names = [...(await listed()), ...kept].map((id) => `sandkeep/snapshot:${id}`);
    const wanted = [...before, ...names].toSorted();
    await until(imagesOf, (images) => images.join() === wanted.join());
    const paused = await engine.docker.listContainers({ filters: { status: ['paused'] } });
    expect(paused).toEqual([]);
    const { body } = await client.get('/v1/snapshots');
    const ready = [...(body.data as { id: string }[]).map(({ id }) => id), ...kept].toSorted();
    await until(charged, (ids) => ids.join() === ready.join());
  }

  async function charged(): Promise<string[]> {
    return inDatabase(service.dataDir, async (session) => {
      const { rows } = await session.query<{ id: string }>(
        `select distinct s.id from snapshots s join accruals a on a.org_id = s.org_id and a.volume_id = s.id
         where a.to_at > now() order by s.id`,
      );
      return rows.map(({ id }) => id);
    });
  }

  async function purgeNow(id: string): Promise<void> {
    await inDatabase(service.dataDir, async (session) =>
      session.query(`update snapshots set purge_at = now() where id = $1`, [id]),
    );
  }

  test.each(CAPTURE)('the service dies %s: the capture is completed once', async (name, moment) => {
    let id = '';
    await killAt(moment, async () => (id = await ask(name.replaceAll(' ', '-'))));
    expect(await ended(client, id)).toMatchObject({ status: 'succeeded', error: null });
    expect(await typesOf(client, id)).toEqual(['snapshot_requested', 'snapshot_created']);
    expect((await client.get(`/v1/sandboxes/${source}`)).body.status).toBe('running');
    await expectWhole();
  });

  test('a cancellation, a deletion and a restore take effect wholly or not at all', async () => {
    const id = await ask('changed');
    await killAt({ when: 'after', request: COMMIT }, async () => {
      await until(
        async () => (await client.get(`/v1/snapshot-operations/${id}`)).body.status as string,
        (status) => status === 'in_progress',
      );
      await client.delete(`/v1/snapshots/${id}`);
    });
    const { status } = await ended(client, id);
    const outcome = status === 'failed' ? 'snapshot_failed' : 'snapshot_created';
    expect(await typesOf(client, id)).toEqual(['snapshot_requested', outcome]);
    await expectWhole();
    const { body: base } = await client.get('/v1/snapshots/by-name/before-the-commit');
    for (const [verb, wait] of [
      ['delete', 0],
      ['restore', 5],
      ['delete', 10],
      ['restore', 20],
    ] as const) {
      const path = `/v1/snapshots/${base.id}`;
      const asking = (verb === 'delete' ? client.delete(path) : client.post(`${path}/restore`, {})).catch(
        unlessCut,
      );
      await sleep(wait);
      kill('SIGKILL', service.pid);
      await service.exited;
      const answer = await asking;
      await serve();
      const { body } = await client.get(path);
      const last = (await typesOf(client, base.id)).at(-1);
      expect(body.status).toBe(last === 'snapshot_deletion_scheduled' ? 'deleting' : 'ready');
      if (answer?.status === 200) expect(body.status).toBe(verb === 'delete' ? 'deleting' : 'ready');
      await expectWhole();
    }
    await client.post(`/v1/snapshots/${base.id}/restore`, {});
  });

  test.each([
    ['before its container is made', { when: 'before', request: CREATE }],
    ['after its container is made', { when: 'after', request: CREATE }],
    ['after its container is started', { when: 'after', request: START }],
  ] as [string, Moment][])(
    'the service dies %s: a sandbox from a snapshot starts once',
    async (name, moment) => {
      const { body: base } = await client.get('/v1/snapshots/by-name/before-the-commit');
      const request = fromSnapshot(name.replaceAll(' ', '-'), base.id, {
        resources: { memory_mib: 32 },
        runtime: { cmd: ['sleep', '1000'] },
      });
      await killAt(moment, async () => client.post('/v1/sandboxes', request, { start: true }));
      const { body } = await until(
        async () => client.get(`/v1/sandboxes/by-name/${request.name}`),
        (answer) => answer.body.status === 'running',
      );
      const filters = { label: [`dev.sandkeep.sandbox=${body.id}`] };
      expect(await engine.docker.listContainers({ all: true, filters })).toHaveLength(1);
      const started = await client.get('/v1/events', { resource_id: body.id, event_type: 'sandbox_started' });
      expect(started.body.data).toHaveLength(1);
      await client.delete(`/v1/sandboxes/${body.id}`);
      await expectWhole();
    },
  );

  test.each(['before', 'after'] as const)(
    'the service dies %s the engine removes a snapshot: nothing of it stays',
    async (when) => {
      const { body } = await client.get(`/v1/snapshots/by-name/${when}-the-commit`);
      await client.delete(`/v1/snapshots/${body.id}`);
      await killAt({ when, request: PURGE }, async () => purgeNow(body.id));
      await expectWhole();
      expect((await client.get(`/v1/snapshots/${body.id}`)).status).toBe(404);
      const purges = await until(
        async () => (await typesOf(client, body.id)).filter((type) => type === 'snapshot_purged'),
        (found) => found.length > 0,
      );
      expect(purges).toHaveLength(1);
    },
  );

  test('the engine dies during the commit: the operation ends, and the sandbox is not paused', async () => {
    const id = await ask('engine');
    const killed = new Promise<void>((resolve) => {
      armed = {
        when: 'before',
        request: COMMIT,
        act: () => setTimeout(() => void engine.kill().then(resolve), 100),
      };
    });
    await killed;
    await engine.start();
    const operation = await ended(client, id);
    expect(['succeeded', 'failed']).toContain(operation['status']);
    await until(
      async () => engine.docker.listContainers({ filters: { status: ['paused'] } }),
      (paused) => paused.length === 0,
    );
    await expectWhole();
  });

  test('everything is gone when everything is deleted', async () => {
    const { body } = await client.get('/v1/snapshots', { include: 'deleted', limit: 100 });
    for (const { id } of body.data) {
      await client.delete(`/v1/snapshots/${id}`);
      await purgeNow(id);
    }
    await client.delete(`/v1/sandboxes/${source}`);
    await expectWhole();
    // The record follows the removal from the engine.
    await until(
      async () => (await client.get('/v1/quotas')).body,
      (quotas) => quotas.snapshots === 0 && quotas.snapshot_gib_used === 0,
    );
    expect(await stop(service)).toBe(0);
  });
});
