import { chmodSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PROGRAM, run, start, urlOf } from '../support/cli.js';
import { until } from '../support/polling.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let folder: string;
beforeAll(async () => {
  service = await startTestService();
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-status-'));
  chmodSync(folder, 0o755);
});
afterAll(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

const status = async (...args: string[]) => {
  const files = ['--secret-keys-file', join(service.directory, 'secret-keys')];
  const ended = await run(
    ['status', ...files, '--event-keys-file', join(service.directory, 'event-keys'), ...args],
    { cwd: folder, env: { DATABASE_URL: urlOf(service.database) } },
  );
  return ended;
};
const asJson = async () => {
  const { code, out } = await status('--json');
  return { code, ...JSON.parse(out) };
};

test('the screen has what runs, waits and acts, within 80 columns and without colours', async () => {
  const client = await service.newOrg();
  await client.post('/v1/sandboxes', smallRequest('runs'), { start: true, wait_for: 'running' });
  await client.post('/v1/sandboxes', smallRequest('rests'));
  // A busy machine may renew the lease of the worker late.
  const { code, out, err } = await until(
    () => status(),
    (ended) => /^Sandkeep \S+ {3}healthy/.test(ended.out),
  );
  expect([code, err]).toEqual([0, '']);
  expect(out).toMatch(/sandboxes +.*1 running/);
  expect(out).toMatch(new RegExp(`${client.org.slug} +1 +2`));
  expect(out).toContain(`pid ${process.pid}`);
  expect(out).not.toContain('\u001b');
  for (const line of out.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
  const state = await until(asJson, ({ healthy }) => healthy === true);
  expect(state).toMatchObject({ code: 0, healthy: true, sandboxes: { running: 1, created: 1 } });
  expect(state.organizations).toEqual([{ org: client.org.slug, sandboxes: 2, running: 1 }]);
  expect(state.workers).toHaveLength(1);
  expect(state.waiting.runs).toBe(0);
});

test('a verification is recorded with its time and outcome', async () => {
  expect((await asJson()).event_log.verification.oldest_secs).toBeNull();
  const keys = ['--event-keys-file', join(service.directory, 'event-keys')];
  const options = { cwd: folder, env: { DATABASE_URL: urlOf(service.database) } };
  expect((await run(['events', 'verify', ...keys], options)).code).toBe(0);
  const { verification } = (await asJson()).event_log;
  expect(verification).toMatchObject({ never: 0, faults: 0 });
  expect(verification.oldest_secs).toBeLessThan(600);
  await service.ctx.pool.query("update event_log_verifications set fault = 'tampered'");
  const faulty = await asJson();
  expect([faulty.code, faulty.healthy]).toEqual([1, false]);
  expect(JSON.stringify(faulty.problems)).toContain('events verify');
  await service.ctx.pool.query('update event_log_verifications set fault = null');
});

test('--watch repeats the screen until it is interrupted', async () => {
  const { child, ended, out } = start([...PROGRAM, 'status', '--watch', '1', '--json'], {
    cwd: folder,
    env: { DATABASE_URL: urlOf(service.database), SANDKEEP_DATA_DIR: service.directory },
  });
  await until(
    () => Promise.resolve(out().split('\n').length),
    (lines) => lines >= 3,
  );
  child.kill('SIGTERM');
  expect((await ended).code).toBe(0);
});

test('a worker without a process, and missing keys, are problems', async () => {
  await service.stopWorker();
  const stopped = await asJson();
  expect(stopped.code).toBe(1);
  expect(stopped.problems.map(({ message }: any) => message).join('\n')).toMatch(
    /no process acts on the engine/,
  );
  const { code, out } = await run(['status'], {
    cwd: folder,
    env: { DATABASE_URL: urlOf(service.database) },
  });
  expect(code).toBe(1);
  expect(out).toMatch(/✗ keys: the key/);
  for (const line of out.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
});

test('it works on a stopped installation with its own database', async () => {
  const files = ['--data-dir', join(folder, 'data')];
  expect((await run(['migrate', ...files])).code).toBe(0);
  const { code, out } = await run(['status', ...files, '--json']);
  expect(code).toBe(0);
  expect(JSON.parse(out)).toMatchObject({ healthy: true, database: { kind: 'embedded' }, workers: [] });
});
