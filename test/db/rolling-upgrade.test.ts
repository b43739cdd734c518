import { join } from 'node:path';
import { expect, inject, test } from 'vitest';
import { migrate } from '../../src/db/migrate.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { makeClient, type Client } from '../support/client.js';
import { cloneEmpty } from '../support/database.js';
import { untilStatus } from '../support/polling.js';
import { cleanUp, launchProgram, makeFolder, ready, stop, type Served } from '../support/processes.js';
import { smallRequest } from '../support/sandbox-requests.js';

/** The built checkout of the previous release; RELEASING.md. */
const PREVIOUS = process.env['SANDKEEP_TEST_PREVIOUS'];
const MISSING = 'SKIPPED: SANDKEEP_TEST_PREVIOUS names no checkout of the previous release';
if (PREVIOUS === undefined) console.warn(`the test of a rolling upgrade is ${MISSING}`);

test.skipIf(PREVIOUS === undefined)(
  `the previous release works on during an upgrade, beside this one${PREVIOUS === undefined ? ` — ${MISSING}` : ''}`,
  async () => {
    const { address, drop } = await cloneEmpty(inject('server'));
    if (!('url' in address)) throw new Error('a new database has a URL');
    const { url } = address;
    const dataDir = makeFolder();
    const start = (root: string): Promise<Served> => {
      const args = ['--json', '--port', '0', '--runtime', 'simulated', '--log-level', 'warn'];
      const all = ['serve', ...args, '--data-dir', dataDir, '--database-url', url];
      return ready(launchProgram(join(root, 'bin', 'sandkeep'), all), dataDir);
    };
    const previous = await start(PREVIOUS!);
    const key = previous.firstKey!;
    const identity = { org: { id: '', name: '', slug: '' }, key, keyId: '' };
    const old = makeClient(previous.url, identity, { documented: false });
    await live(old, 'before');

    await migrate(address);
    await live(old, 'migrated');
    const present = await start(PACKAGE_ROOT);
    const fresh = makeClient(present.url, identity);
    // Each release works on the rows of the other.
    const made = [await make(old, 'made-by-old'), await make(fresh, 'made-by-new')];
    await Promise.all([use(fresh, made[0]!), use(old, made[1]!)]);
    await Promise.all([live(old, 'beside-old'), live(fresh, 'beside-new')]);
    expect(await stop(previous)).toBe(0);
    await live(fresh, 'after');
    expect(await stop(present)).toBe(0);
    await drop();
    await cleanUp(dataDir);
  },
  300_000,
);

async function make(client: Client, name: string): Promise<string> {
  const { status, body } = await client.post('/v1/sandboxes', smallRequest(name));
  expect(status).toBe(200);
  return body.id as string;
}

async function use(client: Client, id: string): Promise<void> {
  await client.post(`/v1/sandboxes/${id}/start`, {});
  await untilStatus(client, id, 'running');
  await client.post(`/v1/sandboxes/${id}/stop`, {});
  await untilStatus(client, id, 'stopped');
  expect((await client.get('/v1/events', { resource_id: id })).body.data.length).toBeGreaterThanOrEqual(5);
  expect((await client.delete(`/v1/sandboxes/${id}`)).status).toBe(200);
}

async function live(client: Client, name: string): Promise<void> {
  await use(client, await make(client, name));
  expect((await client.post('/v1/volumes', { name })).status).toBe(200);
  for (const path of [
    '/v1/sandboxes',
    '/v1/volumes',
    '/v1/billing/usage/sandbox',
    '/v1/quotas',
    '/v1/keys',
  ]) {
    expect((await client.get(path)).status, path).toBe(200);
  }
}
