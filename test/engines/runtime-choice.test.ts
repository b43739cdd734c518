import { createConnection, createServer, type Server, type Socket } from 'node:net';
import { availableParallelism, totalmem } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { migrate } from '../../src/db/migrate.js';
import { planRuntime, type Installation } from '../../src/engines/plan.js';
import { readInstallation } from '../../src/engines/queries.js';
import { makeClient, type Client } from '../support/client.js';
import { containerOf, describeDocker, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { withOlderDatabase } from '../support/older-database.js';
import { call, cleanUp, launch, makeFolder, ready, stop, type Served } from '../support/processes.js';
import { until, untilStatus } from '../support/polling.js';

let folder: string | undefined;
afterEach(async () => {
  if (folder !== undefined) await cleanUp(folder);
  folder = undefined;
});

const NOWHERE = '/nonexistent/docker.sock';

async function serve(args: readonly string[]): Promise<Served> {
  const dataDir = join(folder!, 'data');
  const fixed = ['--json', '--port', '0', '--docker-network', 'none', '--log-level', 'error'];
  return ready(launch(['serve', ...fixed, '--data-dir', dataDir, ...args]), dataDir);
}

/** Runs `serve`, which must refuse. Returns its message. */
async function refused(args: readonly string[]): Promise<string> {
  const fixed = ['--json', '--port', '0', '--data-dir', join(folder!, 'data')];
  const launched = launch(['serve', ...fixed, ...args]);
  expect((await launched.exited).code).toBe(1);
  return launched.err();
}

function clientOf({ url }: Served, key: string): Client {
  // Some of these tests expect a 503.
  return makeClient(url, { org: { id: '', name: '', slug: '' }, key, keyId: '' }, { patience: 0 });
}

interface Engine {
  close(): Promise<void>;
}

/** The machine's engine behind a separate socket, which the test can remove. */
async function openEngine(path: string): Promise<Engine> {
  const open = new Set<Socket>();
  const server: Server = createServer((client) => {
    const engine = createConnection(SOCKET);
    for (const [socket, other] of [
      [client, engine],
      [engine, client],
    ] as const) {
      open.add(socket);
      socket
        .on('error', () => undefined)
        .on('close', () => {
          open.delete(socket);
          other.destroy();
        });
    }
    client.pipe(engine).pipe(client);
  });
  await new Promise<void>((resolve) => server.listen(path, resolve));
  return {
    async close() {
      const closed = new Promise((resolve) => server.close(resolve));
      for (const socket of open) socket.destroy();
      await closed;
    },
  };
}

const body = (name: string) => ({
  name,
  image: { type: 'oci', reference: IMAGE },
  pull_policy: 'never',
  resources: { vcpus: 1, memory_mib: 32 },
});
const running = { start: true, wait_for: 'running' };

describe('the runtime of an installation', () => {
  const none: Installation = { runtime: null, sandboxes: new Map() };
  const docker: Installation = { runtime: 'docker', sandboxes: new Map([['docker', 2]]) };
  const pods: Installation = { runtime: 'kubernetes', sandboxes: new Map([['kubernetes', 2]]) };
  const emptied: Installation = { runtime: 'docker', sandboxes: new Map() };
  const simulated: Installation = { runtime: 'simulated', sandboxes: new Map([['simulated', 1]]) };

  test.each<[string, string, Installation, { use: string; missing: string }]>([
    ['a new one may fall back', 'auto', none, { use: 'docker', missing: 'fall_back' }],
    ['a new one that names Docker needs it now', 'docker', none, { use: 'docker', missing: 'refuse' }],
    ['one with containers waits for its engine', 'auto', docker, { use: 'docker', missing: 'wait' }],
    ['also when it names Docker', 'docker', docker, { use: 'docker', missing: 'wait' }],
    ['also when it has no sandboxes left', 'auto', emptied, { use: 'docker', missing: 'wait' }],
    ['an emptied one may be simulated', 'simulated', emptied, { use: 'simulated', missing: 'refuse' }],
    [
      'an emptied simulated one may get Docker',
      'auto',
      { ...none, runtime: 'simulated' },
      { use: 'docker', missing: 'fall_back' },
    ],
    [
      'a new one on Kubernetes needs its cluster now',
      'kubernetes',
      none,
      { use: 'kubernetes', missing: 'refuse' },
    ],
    ['one with Pods waits for its cluster', 'auto', pods, { use: 'kubernetes', missing: 'wait' }],
  ])('%s', (_, choice, installation, plan) => {
    const { engine, missing } = planRuntime({ choice, change: false }, installation);
    expect({ use: engine.name, missing }).toEqual(plan);
  });

  test('must be the one of its sandboxes, unless the operator accepts another', () => {
    expect(() => planRuntime({ choice: 'simulated', change: false }, docker)).toThrow(
      'this installation has 2 docker sandboxes, which the simulated runtime cannot run: use --runtime docker, delete them first, or leave them as they are with --change-runtime',
    );
    expect(() => planRuntime({ choice: 'docker', change: false }, pods)).toThrow(
      'use --runtime kubernetes, delete',
    );
    expect(() => planRuntime({ choice: 'docker', change: false }, simulated)).toThrow(
      'this installation has 1 simulated sandbox,',
    );
    expect(planRuntime({ choice: 'simulated', change: true }, docker).engine.name).toBe('simulated');
    const changed = planRuntime({ choice: 'docker', change: true }, simulated);
    expect([changed.engine.name, changed.missing]).toEqual(['docker', 'refuse']);
    expect(() => planRuntime({ choice: 'auto', change: true }, docker)).toThrow(
      '--runtime docker, --runtime kubernetes, --runtime microvm or',
    );
  });

  test.each([
    ['docker', ['simulated', 'docker']],
    ['simulated', ['simulated']],
    [null, []],
  ])('is %s after an upgrade, by its existing sandboxes', async (expected, runtimes) => {
    await withOlderDatabase(14, async (address, pool) => {
      await pool.query(
        `insert into orgs (id, name, slug, created_at, updated_at) values (gen_random_uuid(), 'o', 'o', now(), now())`,
      );
      await pool.query(
        `insert into instance (singleton, id, cursor_key) values (true, gen_random_uuid(), sha256(''))`,
      );
      for (const runtime of runtimes) {
        await pool.query(
          `insert into sandboxes (org_id, id, name, slug, status, ephemeral, created_at, changed_at, run_spec, runtime)
           select id, gen_random_uuid(), $1, $1, 'created', false, now(), now(), '{}', $1 from orgs`,
          [runtime],
        );
      }
      await migrate(address);
      expect(await readInstallation(pool)).toEqual({
        runtime: expected,
        sandboxes: new Map(runtimes.map((runtime) => [runtime, 1])),
      });
    });
  });
});

test('stays simulated with simulated sandboxes by default', async () => {
  folder = makeFolder();
  const nowhere = ['--docker-socket', NOWHERE];
  let service = await serve(nowhere);
  const key = service.firstKey!;
  // The rule is that of the Docker runtime.
  expect(JSON.parse(service.out()).capacity).toEqual({
    vcpus: 8 * availableParallelism(),
    memory_mib: Math.floor(totalmem() / 1024 ** 2),
    disk_mib: null,
  });
  const made = await clientOf(service, key).post('/v1/sandboxes', body('one'));
  expect(made.body.runtime).toBe('simulated');
  await stop(service);

  expect(await refused(['--runtime', 'docker', ...nowhere])).toContain('has 1 simulated sandbox, which');
  expect(await refused(['--runtime', 'docker', '--change-runtime', ...nowhere])).toContain(
    `no Docker engine answers on ${NOWHERE}`,
  );
  const words = ['--log-level', 'error', '--data-dir', join(folder, 'data'), '--port', '0'];
  const launched = launch(['serve', ...words, ...nowhere]);
  await until(
    () => Promise.resolve(launched.out()),
    (out) => out.includes('SIMULATED'),
    90_000,
  );
  expect(launched.out()).toContain(
    '! this installation has 1 simulated sandbox: delete them, or change once',
  );
  await stop(launched);

  service = await serve([...nowhere, '--runtime', 'simulated']);
  expect(await call(service, 'GET', '/readyz')).toEqual({
    status: 200,
    body: { status: 'ready', runtime: 'simulated' },
  });
  const client = clientOf(service, key);
  expect((await client.get('/v1/me/org')).body.runtime).toBe('simulated');
  await stop(service);
});

describeDocker('an installation with containers', () => {
  beforeAll(() => makeImage());

  test('waits for its engine, keeps its state, and continues when the engine is back', async () => {
    folder = makeFolder();
    const socket = join(folder, 'engine.sock');
    let engine = await openEngine(socket);
    const auto = ['--docker-socket', socket];
    let service = await serve(auto);
    const key = service.firstKey!;
    let client = clientOf(service, key);
    const made = await client.post('/v1/sandboxes', body('stays'), running);
    expect([made.body.status, made.body.runtime], made.text).toEqual(['running', 'docker']);
    const rests = await client.post('/v1/sandboxes', body('rests'));
    await stop(service);
    await engine.close();

    expect(await refused(['--runtime', 'simulated', ...auto])).toContain(
      'has 2 docker sandboxes, which the simulated runtime cannot run',
    );

    service = await serve(auto);
    client = clientOf(service, key);
    expect(JSON.parse(service.out())).toMatchObject({
      ready: false,
      runtime: 'docker',
      reason: expect.stringContaining(`no Docker engine answers on ${socket}`),
    });
    const unready = {
      status: 503,
      body: {
        error: {
          code: 'not_ready',
          message: expect.stringContaining(`no Docker engine answers on ${socket}`),
          details: { runtime: 'docker' },
        },
      },
    };
    expect(await call(service, 'GET', '/readyz')).toEqual(unready);
    expect((await call(service, 'GET', '/healthz')).status).toBe(200);
    expect((await client.get('/v1/me/org')).body.runtime).toBe('docker');
    expect((await client.get(`/v1/sandboxes/${made.body.id}`)).body).toEqual(made.body);
    const refusal = await client.post('/v1/sandboxes', body('late'));
    expect([refusal.status, refusal.body.error.code]).toEqual([503, 'not_ready']);
    expect(refusal.headers.get('retry-after')).toBe('5');
    const started = await client.post(`/v1/sandboxes/${rests.body.id}/start`, {});
    expect(started.body.status).toBe('starting');

    engine = await openEngine(socket);
    await untilStatus(client, rests.body.id, 'running');
    expect(await call(service, 'GET', '/readyz')).toEqual({
      status: 200,
      body: { status: 'ready', runtime: 'docker' },
    });
    expect((await client.get(`/v1/sandboxes/${made.body.id}`)).body).toEqual(made.body);

    // The same happens when the engine goes away after the service has reached it.
    await engine.close();
    await until(
      () => call(service, 'GET', '/readyz'),
      ({ status }) => status === 503,
    );
    engine = await openEngine(socket);
    await until(
      () => call(service, 'GET', '/readyz'),
      ({ status }) => status === 200,
    );
    for (const { body: each } of [made, rests]) await client.delete(`/v1/sandboxes/${each.id}`);
    for (const { body: each } of [made, rests]) {
      await until(
        () => containerOf(each.id),
        (container) => container === undefined,
      );
    }
    await stop(service);
    await engine.close();
  });
});
