import { existsSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { makeClient, type Client } from '../support/client.js';
import { cleanUp, launch, makeFolder, serve, stop, type Served } from '../support/processes.js';
import { smallRequest } from '../support/sandbox-requests.js';

const LIBRARY = ['x86_64', 'aarch64']
  .map((machine) => `/usr/lib/${machine}-linux-gnu/faketime/libfaketimeMT.so.1`)
  .find((path) => existsSync(path));
const MISSING = 'SKIPPED: there is no libfaketime (on Debian: apt-get install faketime)';
if (LIBRARY === undefined) console.warn(`the tests of leaps of the clock are ${MISSING}`);
const describeClock =
  LIBRARY === undefined
    ? (name: string, body: () => void) => describe.skip(`${name} — ${MISSING}`, body)
    : describe;

const running = { start: true, wait_for: 'running' };
const DAY_SECS = 86_400;

describeClock('while the clock of the machine leaps', () => {
  let folder: string;
  let service: Served;
  let client: Client;
  let under: string[];

  /** Moves the clock of the service and its database to so many seconds from the real time. */
  function setClock(leadSecs: number): void {
    const file = join(folder, 'clock');
    writeFileSync(`${file}.new`, `${leadSecs < 0 ? '' : '+'}${leadSecs}\n`);
    renameSync(`${file}.new`, file);
  }

  beforeAll(async () => {
    folder = makeFolder();
    setClock(0);
    // The monotonic clock stays as it is: the system clock alone is set.
    const settings = ['FAKETIME_NO_CACHE=1', 'FAKETIME_DONT_FAKE_MONOTONIC=1', 'FAKETIME_DONT_RESET=1'];
    under = ['env', `LD_PRELOAD=${LIBRARY}`, `FAKETIME_TIMESTAMP_FILE=${join(folder, 'clock')}`, ...settings];
    service = await serve(join(folder, 'data'), { under });
    client = makeClient(service.url, {
      org: { id: '', name: '', slug: '' },
      key: service.firstKey!,
      keyId: '',
    });
  });
  afterAll(async () => {
    await stop(service);
    await cleanUp(folder);
  });

  const create = async (name: string): Promise<any> =>
    (await client.post('/v1/sandboxes', smallRequest(name), running)).body;
  const end = async (id: string): Promise<any> =>
    (await client.post(`/v1/sandboxes/${id}/stop`, {}, { wait_for: 'stopped' })).body;
  const lengthOf = ({ started_at, stopped_at }: Record<'started_at' | 'stopped_at', string>) =>
    Date.parse(stopped_at) - Date.parse(started_at);

  test('no run has a negative length or lasts longer than it did, and the log stays in order', async () => {
    const begun = performance.now();
    const steady = await create('steady');
    const expires = new Date(Date.now() + DAY_SECS * 1_000).toISOString();
    const { body: made } = await client.post('/v1/keys', {
      name: 'for a day',
      scopes: ['sandboxes:read'],
      expires_at: expires,
    });
    const daily = makeClient(service.url, { org: client.org, key: made.key, keyId: made.id });
    const ended: any[] = [];
    const across = await create('across');
    for (const [index, lead] of [3_600, 40 * DAY_SECS, -2 * DAY_SECS, 0].entries()) {
      setClock(lead);
      expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
      const { id, status, created_at: at } = await create(`leap-${index}`);
      expect(status).toBe('running');
      expect(Math.abs(Date.parse(at) - Date.now() - lead * 1_000)).toBeLessThan(120_000);
      ended.push(await end(id));
      expect((await daily.get('/v1/sandboxes')).status).toBe(lead > DAY_SECS ? 401 : 200);
      // This run spans a step back of the clock.
      if (index === 2) ended.push(await end(across.id));
    }
    ended.push(await end(steady.id));
    const realMs = performance.now() - begun;
    for (const sandbox of ended) {
      expect(sandbox.status).toBe('stopped');
      expect(lengthOf(sandbox)).toBeGreaterThanOrEqual(0);
      expect(lengthOf(sandbox)).toBeLessThanOrEqual(realMs);
    }
    expect(ended.map(lengthOf).filter((ms) => ms === 0)).toHaveLength(1);
    const since = new Date(Date.now() - 5 * DAY_SECS * 1_000).toISOString();
    const until = new Date(Date.now() + 60 * DAY_SECS * 1_000).toISOString();
    const { status, body: usage } = await client.get('/v1/billing/usage/sandbox', { since, until });
    expect(status).toBe(200);
    const used = new Map(usage.rows.map((row: any) => [row.sandbox_id, row.vcpu_seconds * 1_000]));
    for (const millis of used.values()) expect(millis).toBeGreaterThan(0);
    expect(used.get(steady.id)).toBeCloseTo(lengthOf(ended.at(-1)), -1);
    expect(used.has(across.id)).toBe(false);
    // A restart finds times in its future.
    setClock(-3_600);
    await stop(service);
    service = await serve(join(folder, 'data'), { under });
    client = makeClient(service.url, { org: client.org, key: client.key, keyId: '' });
    expect((await create('after')).status).toBe('running');
    setClock(0);
    const verified = launch(['events', 'verify', '--data-dir', join(folder, 'data')]);
    expect([(await verified.exited).code, verified.err()]).toEqual([0, '']);
  });
});
