import { join } from 'node:path';
import { afterEach, beforeAll, describe, expect, test } from 'vitest';
import { parseInstant, shortInstant } from '../../src/lib/instant.js';
import { sleep } from '../../src/lib/sleep.js';
import { makeClient, type Client } from '../support/client.js';
import { containerOf, describeDocker, docker, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { cleanUp, kill, launch, makeFolder, ready, stop, type Served } from '../support/processes.js';
import { until, untilStatus } from '../support/polling.js';
import { readSimulated } from './support/engine-journal.js';

/** The runtime's record of the latest run of a sandbox, read without the service. */
type ReadRecord = (
  sandboxId: string,
  dataDir: string,
) => Promise<{ startedAt: string; stoppedAt: string | null }>;

let folder: string | undefined;
afterEach(async () => {
  if (folder !== undefined) await cleanUp(folder);
  folder = undefined;
});

async function start(dataDir: string, runtime: string): Promise<Served> {
  const options = ['--docker-socket', SOCKET, '--ephemeral-linger-secs', '0', '--log-level', 'error'];
  const room = ['--capacity-vcpus', '100', '--capacity-memory-mib', '100000'];
  const args = [
    'serve',
    '--json',
    '--port',
    '0',
    '--runtime',
    runtime,
    '--data-dir',
    dataDir,
    ...options,
    ...room,
  ];
  return ready(launch(args), dataDir);
}

/**
 * Kills the service during several operations, lets the runtime run without it for a while, and starts it again. Each
 * operation must take effect once, and the stored runs must equal those of the runtime.
 */
async function expectNothingLost(runtime: string, delayMs: number, readRecord: ReadRecord): Promise<void> {
  folder = makeFolder();
  let service = await start(folder, runtime);
  const key = service.firstKey!;
  const connect = (): Client =>
    makeClient(service.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
  let client = connect();
  const image = { type: 'oci', reference: IMAGE };
  const make = async (name: string, query: Record<string, string | boolean>) =>
    (await client.post('/v1/sandboxes', { name, image, pull_policy: 'never' }, query)).body.id as string;
  const running = { start: true, wait_for: 'running' };

  const stays = await make('stays', running);
  const stops = await make('stops', running);
  const goes = await make('goes', running);
  const restarts = await make('restarts', running);
  const again = await make('again', running);
  const firstOfAgain = (await client.get(`/v1/sandboxes/${again}`)).body;
  await client.post(`/v1/sandboxes/${restarts}/stop`, {});
  const firstRun = (await untilStatus(client, restarts, 'stopped')).body;
  const before = (await client.get(`/v1/sandboxes/${stays}`)).body.started_at;
  // The kill interrupts these operations, which nothing awaits.
  const starts = [await make('starts-1', { start: true }), await make('starts-2', { start: true })];
  await client.post(`/v1/sandboxes/${stops}/stop`, {});
  await client.delete(`/v1/sandboxes/${goes}`);
  await client.post(`/v1/sandboxes/${restarts}/start`, {});
  await client.post(`/v1/sandboxes/${again}/restart`, {});
  await sleep(delayMs);
  kill('SIGKILL', service.pid);
  await service.exited;
  await sleep(500);

  service = await start(folder, runtime);
  expect(service.firstKey).toBeUndefined();
  client = connect();
  // The kill came between the stop and the start of a restart: both take effect.
  await until(
    () => client.get(`/v1/sandboxes/${again}`),
    ({ body }) => body.status === 'running' && body.started_at > firstOfAgain.started_at,
  );
  for (const id of [stays, restarts, again, ...starts]) {
    const { body } = await untilStatus(client, id, 'running');
    expect(body.started_at).toBe((await readRecord(id, folder)).startedAt);
  }
  expect((await client.get(`/v1/sandboxes/${stays}`)).body.started_at).toBe(before);
  expect((await client.get(`/v1/sandboxes/${restarts}`)).body.started_at > firstRun.stopped_at).toBe(true);
  const stopped = (await untilStatus(client, stops, 'stopped')).body;
  expect([stopped.started_at, stopped.stopped_at]).toEqual(Object.values(await readRecord(stops, folder)));
  expect((await client.get(`/v1/sandboxes/${goes}`)).status).toBe(404);

  // The audit trail has one start and one end for each run.
  for (const id of [stays, stops, ...starts]) {
    const { body } = await client.get('/v1/events', {
      resource_id: id,
      event_type: ['sandbox_started', 'sandbox_stopped'],
    });
    const types = body.data.map(({ event_type }: { event_type: string }) => event_type).toReversed();
    const expected = id === stops ? ['sandbox_started', 'sandbox_stopped'] : ['sandbox_started'];
    expect(types).toEqual(expected);
  }
  for (const id of [stays, restarts, ...starts]) await client.post(`/v1/sandboxes/${id}/stop`, {});
  let recorded = Date.parse(firstRun.stopped_at) - Date.parse(firstRun.started_at);
  for (const id of [stays, restarts, stops, ...starts]) {
    const { body } = await untilStatus(client, id, 'stopped', 20_000);
    expect([body.started_at, body.stopped_at]).toEqual(Object.values(await readRecord(id, folder)));
    recorded += Date.parse(body.stopped_at) - Date.parse(body.started_at);
  }
  const { body: usage } = await client.get('/v1/billing/usage/sandbox');
  const billed = usage.rows
    .filter(({ sandbox_id }: { sandbox_id: string }) => sandbox_id !== goes && sandbox_id !== again)
    .reduce((sum: number, row: { vcpu_seconds: number }) => sum + row.vcpu_seconds, 0);
  expect(Math.abs(billed - recorded / 1000)).toBeLessThan(0.02);
  for (const id of [stays, restarts, again, stops, ...starts]) await client.delete(`/v1/sandboxes/${id}`);
  await until(
    async () =>
      (await docker.listContainers({ all: true }).catch(() => [])).map(
        ({ Labels }) => Labels['dev.sandkeep.sandbox'],
      ),
    (held) => ![stays, restarts, again, stops, goes, ...starts].some((id) => held.includes(id)),
    20_000,
  );
  expect(await stop(service)).toBe(0);
}

describe('a kill -9 of the service with simulated sandboxes', () => {
  const readJournal: ReadRecord = (sandboxId, dataDir) => {
    const lines = readSimulated(join(dataDir, 'simulated')).trim().split('\n');
    const last = lines.map((line) => JSON.parse(line)).findLast((entry) => entry.sandboxId === sandboxId);
    return Promise.resolve({
      startedAt: shortInstant(last.startedAt),
      stoppedAt: last.finishedAt === null ? null : shortInstant(last.finishedAt),
    });
  };
  test.each([0, 15, 60])('loses no operation %i ms after the last request', (delay) =>
    expectNothingLost('simulated', delay, readJournal),
  );
});

describeDocker('a kill -9 of the service with containers', () => {
  beforeAll(() => makeImage());
  const readEngine: ReadRecord = async (sandboxId) => {
    const { State } = await (await containerOf(sandboxId))!.inspect();
    const short = (text: string) => shortInstant(parseInstant(text)!);
    return { startedAt: short(State.StartedAt), stoppedAt: State.Running ? null : short(State.FinishedAt) };
  };
  test.each([0, 200, 700])('loses no operation %i ms after the last request', (delay) =>
    expectNothingLost('docker', delay, readEngine),
  );
});
