import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { makeClient } from '../support/client.js';
import { PROGRAM, start, urlOf } from '../support/cli.js';
import { openEvents } from '../support/event-stream.js';
import { until, untilStatus } from '../support/polling.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let folder: string;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-roles-'));
});
afterAll(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

/** A process on the database of the service, with an engine of its own. */
async function serve(role: string) {
  const keys = {
    SANDKEEP_EVENT_KEYS_FILE: join(service.directory, 'event-keys'),
    SANDKEEP_SECRET_KEYS_FILE: join(service.directory, 'secret-keys'),
  };
  const env = { DATABASE_URL: urlOf(service.database), ...keys };
  const options = ['--port', '0', '--runtime', 'simulated', '--data-dir', join(folder, role), '--json'];
  const { child, ended, out } = start([...PROGRAM, 'serve', '--role', role, ...options], { env });
  onTestFinished(async () => {
    child.kill('SIGKILL');
    await ended;
  });
  const text = await until(
    () => Promise.resolve(out()),
    (line) => line.includes('\n'),
    60_000,
  );
  return { url: (JSON.parse(text) as { address: string }).address };
}

test('a process with the role api leaves sandboxes to one with the role worker', async () => {
  const api = await serve('api');
  const { org, keyId, key } = await service.newOrg();
  const client = makeClient(api.url, { org, keyId, key });
  const waits = await client.post('/v1/sandboxes', smallRequest('one'), { start: true });
  expect(waits.status, waits.text).toBe(200);
  const { rows } = await service.ctx.pool.query('select from workers');
  expect(rows).toEqual([]);

  const worker = await serve('worker');
  await untilStatus(client, waits.body.id, 'running');
  const refused = await fetch(`${worker.url}/v1/sandboxes`, { headers: { authorization: `Bearer ${key}` } });
  expect([refused.status, await refused.json()]).toMatchObject([404, { error: { code: 'route_not_found' } }]);
  for (const path of ['/healthz', '/readyz']) expect((await fetch(`${worker.url}${path}`)).status).toBe(200);
  expect((await fetch(`${worker.url}/console/`)).status).toBe(404);
  // The API has no engine for it, so the worker answers.
  const { events } = await openEvents(client, `/v1/sandboxes/${waits.body.id}/logs?sources=system`);
  expect((await events.next()).value).toEqual({ comment: 'following' });
  await events.return(undefined);

  await client.post(`/v1/sandboxes/${waits.body.id}/stop`, {});
  await untilStatus(client, waits.body.id, 'stopped');
});
