import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterEach, expect, test } from 'vitest';
import { sleep } from '../src/lib/sleep.js';
import { SimulatedRuntime } from '../src/runtimes/simulated.js';
import { startTestService, type TestOptions, type TestService } from './support/service.js';
import { smallRequest } from './support/specs.js';
import { untilStatus } from './support/until.js';

/** What one does, or what befalls it, holds nobody else up. */

const running = { start: true, wait_for: 'running' };

const open: { service: TestService; directory: string }[] = [];
afterEach(async () => {
  for (const { service, directory } of open.splice(0)) {
    await service.close();
    rmSync(directory, { recursive: true, force: true });
  }
});

async function start(make: (directory: string) => TestOptions): Promise<TestService> {
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-held-up-'));
  const service = await startTestService(make(directory));
  open.push({ service, directory });
  return service;
}

class Unreadable extends SimulatedRuntime {
  override async activity(): Promise<never> {
    return Promise.reject(new Error('it cannot be read what this one does'));
  }
}

test('a sandbox whose activity cannot be read keeps no other from starting', async () => {
  const service = await start((directory) => ({
    runtime: async () => Promise.resolve(new Unreadable(directory)),
  }));
  const [one, other] = [await service.newOrg(), await service.newOrg()];
  const lifecycle = { idle_timeout_secs: 60 };
  const watched = await one.post('/v1/sandboxes', smallRequest('watched', { lifecycle }), running);
  expect(watched.body.status).toBe('running');
  await sleep(1_200);
  expect((await other.post('/v1/sandboxes', smallRequest('other'), running)).body.status).toBe('running');
});

test('a stop is not behind the stops of a hundred that do not want to end', async () => {
  const stopMs = 4_000;
  const service = await start(() => ({ simulated: { stopMs } }));
  const [many, other] = [await service.newOrg(), await service.newOrg()];
  const made = await Promise.all(
    Array.from({ length: 100 }, async (_, index) => {
      const { body } = await many.post('/v1/sandboxes', smallRequest(`s-${index}`), { start: true });
      return body.id as string;
    }),
  );
  for (const id of made) await untilStatus(many, id, 'running');
  const { body } = await other.post('/v1/sandboxes', smallRequest('other'), running);
  await Promise.all(made.map((id) => many.post(`/v1/sandboxes/${id}/stop`, {})));
  const begun = performance.now();
  await other.post(`/v1/sandboxes/${body.id}/stop`, {});
  await untilStatus(other, body.id, 'stopped', 30_000);
  // In turns they would take half a minute and more.
  expect(performance.now() - begun).toBeLessThan(4 * stopMs);
});

test('a wait ends with its budget also when the garbage collector has been there', async () => {
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const service = await start(() => ({ worker: false }));
  const client = await service.newOrg();
  const waiting = client.post('/v1/sandboxes', smallRequest('waits'), { ...running, wait_timeout: 2 });
  for (let times = 0; times < 5; times += 1) {
    await sleep(200);
    collect();
  }
  expect((await waiting).body.status).toBe('starting');
});
