import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CaptureRefusedError } from '../../src/engine/runtime.js';
import { expectRefused, run, runJson } from '../support/cli.js';
import type { Client } from '../support/client.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let client: Client;
let env: Record<string, string>;
let fails = false;
beforeAll(async () => {
  const onCapture = async () => {
    if (fails) throw new CaptureRefusedError('sandbox_changed', 'it was changed');
    return Promise.resolve();
  };
  service = await startTestService({ simulated: { onCapture } });
  client = await service.newOrg();
  env = { SANDKEEP_URL: service.url, SANDKEEP_API_KEY: client.key };
  const { body, text } = await client.post('/v1/sandboxes', smallRequest('source'), {
    start: true,
    wait_for: 'running',
  });
  expect(body.status, text).toBe('running');
});
afterAll(() => service.close());

const fork = (...args: string[]) => run(['fork', ...args], { env });
const forkJson = (...args: string[]) => runJson(['fork', ...args], { env });

describe('sandkeep fork', () => {
  test('makes copies by the name of the sandbox, waits for their disk, and shows them', async () => {
    const { code, out, err } = await fork('source', '--count', '2', '--no-start');
    expect([code, err]).toEqual([0, '']);
    expect(out).toMatch(
      /^SANDBOX +NAME +SLUG +STATUS\n\S+ +source-1 +\S+ +created\n\S+ +source-2 +\S+ +created\n$/,
    );
  });

  test('passes its options on, and takes an id', async () => {
    const { id } = (await client.get('/v1/sandboxes/by-name/source')).body;
    const made = await forkJson(
      id,
      '--names',
      'a,b',
      '--label',
      'task=x',
      '--label',
      'round=1',
      '--inherit-secrets',
    );
    expect(made).toMatchObject({ status: 'succeeded', count: 2, sandbox_id: id });
    expect(made.sandboxes.map(({ name }: { name: string }) => name)).toEqual(['a', 'b']);
    const { body } = await client.get('/v1/sandboxes/by-name/a');
    expect(body.spec.labels).toEqual({ task: 'x', round: '1' });
    const { body: events } = await client.get('/v1/events', { event_type: 'sandbox_fork_requested' });
    expect(events.data[0].payload).toMatchObject({ secrets: 'inherit', ports: 'none', start: true });
    const prefixed = await forkJson('source', '--name-prefix', 'attempt', '--no-wait', '--share-volumes');
    expect(prefixed).toMatchObject({ status: 'queued', sandboxes: [{ name: 'attempt-1' }] });
  });

  test('copies volumes, and refuses to share them too', async () => {
    await client.post('/v1/volumes', { name: 'data' });
    const mounts = [{ type: 'named', name: 'data', guest: '/data' }];
    const { body, text } = await client.post('/v1/sandboxes', smallRequest('mounting', { mounts }), {
      start: true,
      wait_for: 'running',
    });
    expect(body.status, text).toBe('running');
    const both = await fork('mounting', '--share-volumes', '--copy-volumes');
    expect([both.code, both.err]).toEqual([1, expect.stringContaining('exclude each other')]);
    const made = await forkJson('mounting', '--copy-volumes');
    expect(made).toMatchObject({ status: 'succeeded' });
    const { body: copy } = await client.get('/v1/sandboxes/by-name/mounting-1');
    expect(copy.spec.mounts[0].name).toBe('data-mounting-1');
  });

  test('fails with the reason when the service refuses, and when the capture fails', async () => {
    expectRefused(await fork('missing'), 'resource not found');
    expectRefused(await fork('source', '--names', 'a'), 'a sandbox with the name "a" already exists');
    expectRefused(await fork('source', '--count', 'many'), 'must be a whole number');
    expectRefused(await fork('source', '--label', 'x'), 'It must be like team=ml.');
    fails = true;
    expectRefused(await fork('source'), 'no copies are made: it was changed');
    fails = false;
  });
});
