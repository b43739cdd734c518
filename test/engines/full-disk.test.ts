import Docker from 'dockerode';
import { randomBytes } from 'node:crypto';
import { execFileSync, spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { existsSync, mkdirSync, rmSync, statfsSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ActiveEventKeys } from '../../src/audit/events/active-keys.js';
import { operator } from '../../src/audit/events/actor.js';
import { openEventKeys } from '../../src/audit/log/signing-key.js';
import { openPool } from '../../src/db/pool.js';
import { DiskReserve } from '../../src/disk/disk-reserve.js';
import { createKey } from '../../src/keys/create.js';
import { createOrg } from '../../src/orgs/create.js';
import { makeClient, type Client } from '../support/client.js';
import { describeDocker, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { launch, makeFolder, ready, stop, until, type Served } from '../support/processes.js';
import {
  configOf,
  layerOf,
  remoteImage,
  serveRegistry,
  type RemoteImage,
} from '../support/private-registry.js';
import { makeImages, refusal, serve } from '../support/pulled-images.js';
import { mountSmallDisk, onSmallDisk, unmountSmallDisk } from '../support/small-disk.js';
import { codeOf, filesOf } from '../support/volume-files.js';

const MIB = 1024 ** 2;
const RESERVE_MIB = 60;
const PULLED = { filters: { reference: ['sandkeep/pulled'] } };

/** Everything is on one small disk: the database, the volumes, and an engine that cannot bound its containers. */
onSmallDisk(describeDocker)('a disk that one organization fills', () => {
  const folder = makeFolder();
  const root = join(folder, 'root');
  const dataDir = join(root, 'data');
  const engineDir = join(folder, 'engine');
  const socketPath = join(engineDir, 'engine.sock');
  const filler = join(root, 'filler');
  const options = [
    '--data-dir',
    dataDir,
    '--docker-socket',
    socketPath,
    '--disk-reserve-mib',
    String(RESERVE_MIB),
  ];
  let engine: ChildProcess | undefined;
  let service: Served;
  let a: Client;
  let b: Client;

  const freeMib = () => {
    const { bavail, bsize } = statfsSync(root);
    return (bavail * bsize) / MIB;
  };
  /** Leaves so much of the disk. */
  const fillUpTo = (mib: number) => {
    rmSync(filler, { force: true });
    execFileSync('fallocate', ['-l', `${Math.floor(freeMib() - mib)}MiB`, filler]);
  };
  const readiness = async () => {
    const answer = await fetch(`${service.url}/readyz`);
    return { status: answer.status, body: (await answer.json()) as any };
  };
  /** Whether the service knows how much room there is now. */
  const hasMeasured = async () => {
    const { metrics } = JSON.parse(service.out()) as { metrics: string };
    const text = await (await fetch(`${metrics}/metrics`)).text();
    const [, bytes] = /^sandkeep_disk_free_bytes\{place="engine"\} (\d+)$/m.exec(text)!;
    return Math.abs(Number(bytes) / MIB - freeMib()) < 5;
  };
  const untilRoom = () =>
    until('the service has measured the room', async () => {
      const { status, body } = await readiness();
      return status === 200 && body.warnings === undefined && (await hasMeasured());
    });
  const untilShort = () =>
    until('the service has measured the shortage', async () => {
      const { body } = await readiness();
      return body.warnings !== undefined && (await hasMeasured());
    });

  beforeAll(async () => {
    makeImage();
    mountSmallDisk(folder, 700);
    mkdirSync(engineDir);
    engine = spawn(
      'unshare',
      [
        '--net',
        'dockerd',
        '--host',
        `unix://${socketPath}`,
        '--data-root',
        join(root, 'engine'),
        '--exec-root',
        join(engineDir, 'exec'),
        '--pidfile',
        join(engineDir, 'pid'),
        '--storage-driver',
        'overlay2',
        '--bridge',
        'none',
        '--iptables=false',
        '--ip-masq=false',
      ],
      { stdio: 'ignore' },
    );
    const docker = new Docker({ socketPath });
    await until('the engine answers', () =>
      docker.ping().then(
        () => true,
        () => false,
      ),
    );
    const copy = 'docker -H "unix://$1" save "$3" | docker -H "unix://$2" load';
    execFileSync('sh', ['-c', copy, 'sh', SOCKET, socketPath, IMAGE], { stdio: 'ignore' });
    const starting = launch([
      'serve',
      '--json',
      '--port',
      '0',
      '--runtime',
      'docker',
      '--docker-network',
      'none',
      '--log-level',
      'warn',
      '--registry-http',
      '127.0.0.1',
      '--metrics-port',
      '0',
      ...options,
    ]);
    service = await ready(starting, dataDir);
    const eventKeys = openEventKeys({ file: join(dataDir, 'event-keys') });
    const pool = openPool(
      { socket: join(dataDir, 'run') },
      () => undefined,
      new ActiveEventKeys(eventKeys).marker,
    );
    const newOrg = async (slug: string) => {
      const org = await createOrg(pool, { name: slug, slug }, operator('test'));
      const { id: keyId, key } = await createKey(pool, org.id, 'test key', operator('test'));
      return makeClient(service.url, { org, key, keyId }, { patience: 0 });
    };
    [a, b] = [await newOrg('org-a'), await newOrg('org-b')];
    await pool.end();
  });
  afterAll(async () => {
    if (service) await stop(service);
    const ended = new Promise((resolve) => engine?.once('exit', resolve));
    engine?.kill();
    await ended;
    unmountSmallDisk(root);
    rmSync(folder, { recursive: true, force: true });
  });

  async function volumeOf(client: Client) {
    return filesOf(client, (await client.get('/v1/volumes/default')).body.id);
  }

  const specOf = (name: string, cmd: string[]) => ({
    name,
    image: { type: 'oci', reference: IMAGE },
    pull_policy: 'never',
    network: { enabled: false },
    runtime: { cmd },
  });
  const running = { start: true, wait_for: 'running', wait_timeout: 120 };

  test('by uploads and copies is not filled beyond the reserve, and is free again after a removal', async () => {
    const [mine, other] = [await volumeOf(a), await volumeOf(b)];
    expect((await other.put('kept', 'by b')).status).toBe(200);
    fillUpTo(RESERVE_MIB + 60);
    await untilRoom();
    // In the middle of an upload whose length is not known.
    const endless = new ReadableStream({
      pull: (controller) => controller.enqueue(Buffer.alloc(MIB, 'x')),
    });
    expect(codeOf(await mine.put('endless', endless))).toEqual([507, 'storage_full']);
    expect(freeMib()).toBeGreaterThan(RESERVE_MIB - 5);
    await untilRoom();

    // The bytes of the refused upload count until the next measurement.
    await until(
      'the upload fits',
      async () => (await mine.put('large', Buffer.alloc(25 * MIB, 'x'))).status === 200,
    );
    const copies: unknown[] = [];
    for (let index = 0; index < 4; index += 1) copies.push(codeOf(await mine.copy('large', `copy-${index}`)));
    expect(copies.at(-1)).toEqual([507, 'storage_full']);
    expect(freeMib()).toBeGreaterThan(RESERVE_MIB - 5);

    fillUpTo(RESERVE_MIB - 10);
    await untilShort();
    const refused = await b.post('/v1/sandboxes', specOf('refused', []));
    expect(codeOf(refused)).toEqual([507, 'storage_full']);
    expect(refused.headers.get('retry-after')).toBe('30');
    expect(codeOf(await mine.mkdir('directory'))).toEqual([507, 'storage_full']);
    expect(codeOf(await mine.put('small', 'x'))).toEqual([507, 'storage_full']);
    // The reserve is for the database.
    expect((await b.post('/v1/volumes', { name: 'made-in-the-reserve' })).status).toBe(200);
    expect(await other.text('kept')).toBe('by b');
    expect((await b.get('/v1/sandboxes')).status).toBe(200);
    const { status, body } = await readiness();
    expect([status, body.status, body.warnings.length]).toEqual([200, 'ready', 3]);
    const doctor = launch(['doctor', '--json', ...options]);
    await doctor.exited;
    const disks = (JSON.parse(doctor.out()) as any[]).filter(({ check }) => check.endsWith(' disk'));
    expect(disks.map(({ state }) => state)).toEqual(['missing', 'missing', 'missing']);
    expect(disks[1].found).toMatch(/\d+ MiB free in .*, 60 MiB in reserve: uploads, creates and starts are/);
    expect(disks[1].remedy).toBe('delete volumes and their files');

    rmSync(filler);
    await untilRoom();
    expect((await mine.put('small', 'x')).status).toBe(200);
    for (const name of ['large', 'copy-0', 'copy-1', 'copy-2']) await mine.remove(name);
  });

  test('by images loses those without a sandbox, and keeps the others', async () => {
    const layers = [0, 1].map((n) => layerOf({ [`file-${n}`]: 'x' }));
    const [used, unused] = (await Promise.all(layers)).map((layer) =>
      remoteImage(configOf([layer]), [gzipSync(layer)]),
    ) as [RemoteImage, RemoteImage];
    const registry = await serveRegistry(used);
    const create = async (name: string, reference: string) => {
      const image = { type: 'oci', reference: `${registry.host}/${reference}` };
      const spec = { ...specOf(name, []), image, pull_policy: 'if_missing' };
      const { body, text } = await a.post('/v1/sandboxes', spec, running);
      expect(body.status, text).toBe('running');
      return `/v1/sandboxes/${body.id}`;
    };
    const engineOf = new Docker({ socketPath });
    const pulled = async () => {
      const images = await engineOf.listImages(PULLED);
      return images.map(({ Id }) => Id).toSorted();
    };
    try {
      const kept = await create('with-image', 'team/used:1');
      registry.image = unused;
      const gone = await create('without-image', 'team/unused:1');
      expect(await pulled()).toEqual([used.config, unused.config].toSorted());
      expect((await a.delete(gone)).status).toBe(200);
      fillUpTo(RESERVE_MIB - 10);
      await until('the image is removed', async () => (await pulled()).length < 2);
      expect(await pulled()).toEqual([used.config]);
      rmSync(filler);
      await untilRoom();
      expect((await a.delete(kept)).status).toBe(200);
    } finally {
      await registry.close();
    }
  });

  const sized = async (mib: number) => {
    const layer = await layerOf({ content: randomBytes((mib * MIB) / 2).toString('hex') });
    return remoteImage(configOf([layer]), [layer]);
  };

  /** Leaves the images so much of the disk, as it is now. */
  const imagesIn = async (mib: number) => {
    const reserveMib = Math.floor(freeMib()) - mib;
    const disk = new DiskReserve({ pathOf: () => root, reserveMib, hasOwnDatabase: false });
    await disk.refresh();
    return { disk, ...makeImages({ disk }, new Docker({ socketPath })) };
  };

  test('up to the reserve refuses an image while it arrives', async () => {
    const registry = await serve(await sized(32));
    const pullIn = async (mib: number) =>
      refusal((await imagesIn(mib)).ensure(`${registry.host}/team/app:1`));
    const full = 'the disk of this machine is full up to its reserve: ask the operator to make room';
    expect(await pullIn(16)).toBe(full);
    expect(await new Docker({ socketPath }).listImages(PULLED)).toEqual([]);
    expect(await pullIn(128)).toBe('it was pulled');
  });

  test('has room for an image when others are removed during its pull', async () => {
    const registry = await serve(await sized(48));
    const { disk, ensure, makeRoom, release } = await imagesIn(112);
    await ensure(`${registry.host}/team/unused:1`);
    release();
    await disk.refresh();
    // An image needs twice its size until it is unpacked.
    registry.image = await sized(40);
    let isFirst = true;
    registry.intercept = ({ url }, response) => {
      if (!isFirst || !url!.includes('/blobs/')) return false;
      isFirst = false;
      void makeRoom().then(() => response.writeHead(307, { location: url! }).end());
      return true;
    };
    expect(await refusal(ensure(`${registry.host}/team/next:1`))).toBe('it was pulled');
  });

  test('by images without a sandbox has room for another image', async () => {
    const registry = await serveRegistry(await sized(80));
    const image = { type: 'oci', reference: `${registry.host}/team/large:1` };
    const create = async (name: string, sandboxImage: typeof image) =>
      a.post(
        '/v1/sandboxes',
        { ...specOf(name, []), image: sandboxImage, pull_policy: 'if_missing' },
        running,
      );
    try {
      const unused = await create('of-unused', image);
      expect(unused.body.status, unused.text).toBe('running');
      expect((await a.delete(`/v1/sandboxes/${unused.body.id}`)).status).toBe(200);
      const engineOf = new Docker({ socketPath });
      await until('the container is removed', async () => {
        const held = await engineOf.listContainers({ all: true });
        return !held.some(({ Labels }) => Object.values(Labels).includes(unused.body.id));
      });
      registry.image = await sized(50);
      fillUpTo(2 * RESERVE_MIB + 20);
      await untilRoom();
      const next = await create('of-next', { ...image, reference: `${registry.host}/team/next:1` });
      expect(next.body.status, next.text).toBe('running');
      expect((await a.delete(`/v1/sandboxes/${next.body.id}`)).status).toBe(200);
    } finally {
      rmSync(filler, { force: true });
      await registry.close();
    }
  });

  /** 10 MB a second at most. */
  const FILLS = {
    'files on': 'while true; do dd if=/dev/zero of=/full/$i bs=1M count=1; i=$((i+1)); sleep 0.1; done',
    'a removed file on':
      'exec 3> /full/$i; rm /full/$i; while true; do dd if=/dev/zero bs=1M count=1 >&3; sleep 0.1; done',
  };

  test.each([
    ['files on', 'disk'],
    ['files on', 'volume'],
    ['a removed file on', 'disk'],
    ['a removed file on', 'volume'],
  ] as const)('by %s the %s of a sandbox costs that sandbox its run, and no other', async (what, where) => {
    const name = `${where}-${what.replaceAll(' ', '-')}`;
    const quiet = await b.post('/v1/sandboxes', specOf(`quiet-${name}`, ['sleep', '600']), running);
    expect(quiet.body.status, quiet.text).toBe('running');
    fillUpTo(2 * RESERVE_MIB + 40);
    await untilRoom();
    const target =
      where === 'disk'
        ? { patches: [{ type: 'mkdir', path: '/full' }] }
        : { mounts: [{ type: 'bind', host: '/', guest: '/full' }] };
    const spec = specOf(`filling-${name}`, ['sh', '-c', `i=0; (${FILLS[what]}) 2> /dev/null`]);
    const filling = await a.post('/v1/sandboxes', { ...spec, ...target }, running);
    expect(filling.body.status, filling.text).toBe('running');
    const path = `/v1/sandboxes/${filling.body.id}`;
    await until(
      'the sandbox is stopped',
      async () => (await a.get(path)).body.status === 'stopped',
      400_000,
      200,
    );
    const events = (
      await a.get('/v1/events', { event_type: 'sandbox_stop_requested', resource_id: filling.body.id })
    ).body.data;
    expect(events.map(({ actor, payload }: any) => [actor.code, payload.reason])).toEqual([
      ['disks', 'disk_full'],
    ]);
    expect((await b.get(`/v1/sandboxes/${quiet.body.id}`)).body.status).toBe('running');
    rmSync(filler);
    expect((await a.delete(path)).status).toBe(200);
    await untilRoom();
    expect((await b.delete(`/v1/sandboxes/${quiet.body.id}`)).status).toBe(200);
    if (where === 'volume' && what === 'files on')
      execFileSync('sh', ['-c', `find ${dataDir}/volumes -path '*/data/*' -size +500k -delete`]);
  });

  test('to the last byte makes the service unready, by name, and loses nothing', async () => {
    const kept: string[] = [];
    const create = async () => {
      const name = `volume-${kept.length}-${Math.random().toString(36).slice(2)}`;
      const answer = await b.post('/v1/volumes', { name, labels: { long: 'x'.repeat(60) } });
      if (answer.status === 200) kept.push(name);
      return answer;
    };
    const ballast = join(dataDir, 'ballast');
    await until('the ballast is held', () => existsSync(ballast));
    for (let index = 0; index < 5; index += 1) await create();
    // The service may free room meanwhile.
    await until('the disk is full', () => {
      const more = ['oflag=append', 'conv=notrunc'];
      spawnSync('dd', ['if=/dev/zero', `of=${filler}`, 'bs=64k', ...more], { stdio: 'ignore' });
      return freeMib() < 1;
    });
    await until('the service is not ready', async () => (await readiness()).status === 503);
    expect((await readiness()).body.error.code).toBe('not_ready');
    const seen = new Set<string>();
    for (let index = 0; index < 200; index += 1) {
      const { status, body } = await create();
      seen.add(`${status} ${body?.error?.code ?? ''}`.trim());
    }
    expect(seen).toContain('507 storage_full');
    expect([...seen].filter((what) => !['200', '507 storage_full', '503 not_ready'].includes(what))).toEqual(
      [],
    );
    expect((await b.get('/v1/volumes')).status).toBe(200);
    await until('the ballast is given to the database', () => !existsSync(ballast));
    expect(service.process.exitCode).toBeNull();

    rmSync(filler);
    await untilRoom();
    await until('the ballast is held again', () => existsSync(ballast));
    await until('the database writes again', async () => (await create()).status === 200);
    const names = new Set((await b.get('/v1/volumes')).body.map(({ name }: any) => name));
    expect(kept.filter((name) => !names.has(name))).toEqual([]);
  });
});
