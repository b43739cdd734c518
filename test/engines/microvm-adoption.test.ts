import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { connectAgent } from '../../src/engines/microvm/agent-session.js';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { placesOf } from '../../src/engines/microvm/places.js';
import { isAlive } from '../../src/engines/microvm/processes.js';
import { withDirectory } from '../../src/engines/microvm/supervisor.js';
import { instantFromMicros, shortInstant } from '../../src/lib/instant.js';
import { makeClient, type Client } from '../support/client.js';
import { allEvents, openEvents } from '../support/event-stream.js';
import { sh } from '../support/guest.js';
import { describeMicrovm, isEmulated, onMachines } from '../support/microvm/needs.js';
import { IMAGE, importTestImage } from '../support/microvm/service.js';
import { until, untilStatus } from '../support/polling.js';
import { call, cleanUp, kill, launch, makeFolder, ready, type Served } from '../support/processes.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };

describeMicrovm('a service on virtual machines', () => {
  let folder: string | undefined;
  afterEach(async () => {
    if (folder !== undefined) await cleanUp(folder);
    folder = undefined;
  });

  async function serve(): Promise<Served> {
    const dataDir = join(folder!, 'data');
    const fixed = ['--json', '--port', '0', '--preview-host', 'none', '--log-level', 'error'];
    const options = ['--default-disk-mib', '256', '--data-dir', dataDir];
    return ready(launch(['serve', ...fixed, ...onMachines(), ...options]), dataDir);
  }

  const clientOf = ({ url }: Served, key: string): Client =>
    makeClient(url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });

  test('is killed, and its successor finds every machine, also one that has ended meanwhile', async () => {
    folder = makeFolder();
    const first = await serve();
    // Nobody takes an emulated processor for a real one.
    const emulated = expect.stringContaining('EMULATED');
    const answer = await call(first, 'GET', '/readyz');
    expect(answer.body).toMatchObject({ runtime: 'microvm' });
    for (const warnings of [
      JSON.parse(first.out()).warnings,
      (answer.body as { warnings?: string[] }).warnings,
    ])
      expect(warnings ?? []).toEqual(isEmulated ? [emulated] : expect.not.arrayContaining([emulated]));
    await importTestImage(first.dataDir);
    const before = clientOf(first, first.firstKey!);
    const { headers } = await before.get('/v1/sandboxes');
    expect(headers.get('x-runtime-warning') ?? '').toEqual(isEmulated ? emulated : '');
    const { body: volume } = await before.post('/v1/volumes', { name: 'data' });
    const create = async (name: string, cmd: string[], lifecycle = {}, mounts: object[] = []) => {
      const image = { type: 'oci', reference: IMAGE };
      const resources = { vcpus: 1, memory_mib: 192 };
      const spec = {
        name,
        image,
        pull_policy: 'never',
        resources,
        network: { enabled: false },
        lifecycle,
        mounts,
      };
      const { body } = await before.post('/v1/sandboxes', { ...spec, runtime: { cmd } }, running);
      expect(body.status, JSON.stringify(body)).toBe('running');
      return body;
    };
    const count = 'i=0; while :; do echo $((i += 1)); sleep 0.2; done';
    const [lives, ends] = await Promise.all([
      create('lives', ['sh', '-c', count], {}, [{ type: 'named', name: 'data', guest: '/data' }]),
      create('ends', ['sh', '-c', 'while [ ! -e /tmp/end ]; do sleep 0.1; done; exit 4'], {
        ends_with_command: true,
      }),
    ]);
    const recordOf = async ({ id }: { id: string }) =>
      (await readRecord(placesOf(join(first.dataDir, 'microvm'), id)))!;
    const machine = await recordOf(lives);
    kill('SIGKILL', first.pid);
    await first.exited;
    const { run } = placesOf(join(first.dataDir, 'microvm'), ends.id);
    const defaults = { env: ['PATH=/bin'], cwd: '/' };
    const agent = await withDirectory(run, async (short) => connectAgent(`${short}/agent.sock`, defaults));
    await sh(agent, 'touch /tmp/end');
    agent.close();
    const ended = await until(
      () => recordOf(ends).then(({ end }) => String(end?.endedAt ?? '')),
      (at) => at !== '',
    );
    expect(isAlive(machine)).toBe(true);

    const second = await serve();
    const after = clientOf(second, first.firstKey!);
    const { body: failed } = await untilStatus(after, ends.id, 'failed');
    expect(failed.stopped_at).toBe(shortInstant(instantFromMicros(BigInt(ended))));
    expect(failed.last_failure_message).toBe('the main process ended with code 4');
    const { body: adopted } = await after.get(`/v1/sandboxes/${lives.id}`);
    expect([adopted.status, adopted.started_at]).toEqual(['running', lives.started_at]);
    const echo = await after.post(`/v1/sandboxes/${lives.id}/exec`, {
      cmd: 'sh',
      args: ['-c', 'cat /proc/1/comm | tee /data/written'],
    });
    expect(echo.text).toContain('init');
    // The file server of its volume has outlived the service too.
    const written = await after.get(`/v1/volumes/${volume.id}/files/content`, { path: '/written' });
    expect(written.text).toBe('init\n');
    expect(await recordOf(lives)).toEqual(machine);

    await after.post(`/v1/sandboxes/${lives.id}/stop`, {});
    const { body: stopped } = await untilStatus(after, lives.id, 'stopped');
    const { end } = await recordOf(lives);
    expect(stopped.stopped_at).toBe(shortInstant(instantFromMicros(end!.endedAt)));
    const lines = (await allEvents((await openEvents(after, `/v1/sandboxes/${lives.id}/logs`)).events))
      .filter(({ event }) => event === 'log')
      .map(({ data }) => Number(data.text));
    expect(lines.length).toBeGreaterThan(10);
    expect(lines).toEqual(lines.map((_, index) => index + 1));
  });
});
