import { once } from 'node:events';
import { existsSync, rmSync, truncateSync } from 'node:fs';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { join } from 'node:path';
import { text as textOf } from 'node:stream/consumers';
import { afterEach, expect, test } from 'vitest';
import { placesOf } from '../../src/engines/microvm/places.js';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { memoryFile } from '../../src/engines/microvm/saved-memory.js';
import { instantFromMicros, shortInstant } from '../../src/lib/instant.js';
import { makeClient, type Client } from '../support/client.js';
import { allEvents, openEvents } from '../support/event-stream.js';
import { describeMicrovm, onMachines } from '../support/microvm/needs.js';
import { IMAGE, importTestImage } from '../support/microvm/service.js';
import { until, untilStatus } from '../support/polling.js';
import { cleanUp, inDatabase, kill, launch, makeFolder, ready, type Served } from '../support/processes.js';

/**
 * Serves a preview, and adds one to a number in its memory for each line that a pipe gets. It uses no processor time
 * while it waits for a line, so the sandbox becomes idle.
 */
const COUNTER = `mkdir -p /tmp/web; echo hello > /tmp/web/index.html; httpd -p 8000 -h /tmp/web
mkfifo /tmp/ask /tmp/answer; i=0; while read _ < /tmp/ask; do echo $((i += 1)) > /tmp/answer; done`;

/** Enough lines of output to see that none is lost or repeated. */
const LINES = 20;

const waits = (status: string) => ({ wait_for: status, wait_timeout: 120 });

/** Each test is one service, whose memory the next part of it needs: boots are slow. */
describeMicrovm('a paused virtual machine', () => {
  let folder: string | undefined;
  let client: Client;
  let served: Served;
  afterEach(async () => {
    if (folder !== undefined) await cleanUp(folder);
    folder = undefined;
  });

  async function serve(): Promise<void> {
    const dataDir = join(folder!, 'data');
    const fixed = ['--json', '--port', '0', '--log-level', 'error', '--default-disk-mib', '256'];
    const options = ['--preview-host', '127.0.0.1', '--preview-port', '0', '--data-dir', dataDir];
    served = await ready(launch(['serve', ...fixed, ...onMachines(), ...options]), dataDir);
  }

  async function begin(): Promise<void> {
    folder = makeFolder();
    await serve();
    await importTestImage(served.dataDir);
    connect(served.firstKey!);
  }

  function connect(key: string): void {
    client = makeClient(served.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });
  }

  async function restart(): Promise<void> {
    kill('SIGKILL', served.pid);
    await served.exited;
    await serve();
    connect(client.key);
  }

  async function create(cmd: string[], more: Record<string, unknown> = {}): Promise<string> {
    const image = { type: 'oci', reference: IMAGE };
    const resources = { vcpus: 1, memory_mib: 192 };
    const spec = { name: 'sleeper', image, pull_policy: 'never', resources, runtime: { cmd }, ...more };
    const { body } = await client.post('/v1/sandboxes', spec, { start: true, ...waits('running') });
    expect(body.status, JSON.stringify(body)).toBe('running');
    return body.id;
  }

  const at = (id: string, operation = '') => `/v1/sandboxes/${id}${operation === '' ? '' : `/${operation}`}`;
  const places = (id: string) => placesOf(join(served.dataDir, 'microvm'), id);
  const inside = async (id: string, script: string): Promise<string> => {
    const { body, text } = await client.post(at(id, 'exec'), { cmd: 'sh', args: ['-c', script] });
    expect(body.exit_code, text).toBe(0);
    return body.stdout;
  };

  test('continues after kills of the service: processes, output, addresses; its clock is right', async () => {
    await begin();
    const count = 'i=0; while :; do echo $((i += 1)); echo $i > /tmp/count; sleep 0.2; done';
    const id = await create(['sh', '-c', count]);
    await inside(id, 'sleep 1; echo kept > /dev/shm/memory || mkdir -p /dev/shm && echo kept > /tmp/memory');
    const process = await inside(
      id,
      'cat /proc/sys/kernel/random/boot_id; ip addr show eth0 2>/dev/null | grep inet',
    );
    const { body: running } = await client.get(at(id));

    // The service is killed while the supervisor saves the memory.
    const { body: pausing } = await client.post(at(id, 'pause'), {});
    expect(pausing.status, JSON.stringify(pausing)).toBe('stopping');
    await restart();
    const { body: paused } = await untilStatus(client, id, 'stopped');
    const record = (await readRecord(places(id)))!;
    expect([paused.stop_reason, paused.paused_at, paused.stopped_at]).toEqual([
      'paused',
      paused.stopped_at,
      shortInstant(instantFromMicros(record.end!.endedAt)),
    ]);
    expect(record.savedBytes).toBeLessThan((192 + 64) * 1024 * 1024);
    expect(existsSync(memoryFile(places(id).run))).toBe(true);

    // It is killed while the sandbox is paused, and while it is resumed.
    await restart();
    expect((await client.get(at(id))).body.paused_at).toBe(paused.paused_at);
    await client.post(at(id, 'resume'), {});
    await restart();
    const { body: resumed } = await untilStatus(client, id, 'running');
    expect([resumed.paused_at, resumed.started_at > paused.stopped_at]).toEqual([null, true]);
    expect(existsSync(memoryFile(places(id).run))).toBe(false);
    expect(existsSync(memoryFile(places(id).paused))).toBe(false);

    const [seconds] = (await inside(id, 'date +%s')).trim().split('\n');
    expect(Math.abs(Number(seconds) - Date.now() / 1_000)).toBeLessThan(60);
    expect(
      await inside(id, 'cat /proc/sys/kernel/random/boot_id; ip addr show eth0 2>/dev/null | grep inet'),
    ).toBe(process);
    const before = Number(await inside(id, 'cat /tmp/count'));
    await until(
      async () => Number(await inside(id, 'cat /tmp/count')),
      (now) => now > Math.max(before, LINES),
    );
    await client.post(at(id, 'stop'), {}, waits('stopped'));
    const lines = (await allEvents((await openEvents(client, at(id, 'logs'))).events))
      .filter(({ event }) => event === 'log')
      .map(({ data }) => Number(data.text));
    expect(lines.length).toBeGreaterThan(LINES);
    expect(lines).toEqual(lines.map((_, index) => index + 1));

    const { body: usage } = await client.get('/v1/billing/usage/storage');
    const { body: compute } = await client.get('/v1/billing/usage/sandbox');
    const seconds_paused = (Date.parse(resumed.started_at) - Date.parse(paused.stopped_at)) / 1_000;
    const memory = Math.ceil(record.savedBytes! / 1024 / 1024);
    // One row a day.
    const stored = usage.rows.reduce((sum: number, row: { mib_seconds: number }) => sum + row.mib_seconds, 0);
    expect(stored / memory / seconds_paused).toBeCloseTo(1, 1);
    const ran = compute.rows.reduce(
      (sum: number, row: { vcpu_seconds: number }) => sum + row.vcpu_seconds,
      0,
    );
    const whole = (Date.now() - Date.parse(running.started_at)) / 1_000;
    expect(ran).toBeLessThan(whole - seconds_paused + 0.1);
  });

  test('without its memory ends as lost or failed, and starts anew from its disk', async () => {
    await begin();
    const id = await create(['sleep', '600'], { network: { enabled: false } });
    await inside(id, 'echo kept > /srv/file; sync');
    await client.post(at(id, 'pause'), {}, waits('paused'));
    const memory = memoryFile(places(id).run);
    truncateSync(memory, 1_000_000);
    const { body: lost } = await untilStatus(client, id, 'failed');
    expect([lost.stop_reason, lost.paused_at]).toEqual(['lost', null]);
    expect((await client.post(at(id, 'resume'), {})).status).toBe(409);
    await client.post(at(id, 'start'), {}, waits('running'));
    expect(await inside(id, 'cat /srv/file')).toBe('kept\n');

    // A stop gives the memory up, and a delete removes everything.
    await client.post(at(id, 'pause'), {}, waits('paused'));
    expect(existsSync(memory)).toBe(true);
    await client.post(at(id, 'stop'), {});
    await until(
      async () => Promise.resolve(existsSync(memory)),
      (exists) => !exists,
    );
    await client.post(at(id, 'start'), {}, waits('running'));
    await client.post(at(id, 'pause'), {}, waits('paused'));
    await client.delete(at(id));
    await until(
      async () => Promise.resolve(existsSync(places(id).directory)),
      (exists) => !exists,
    );
    rmSync(join(served.dataDir, 'image.tar'), { force: true });
  });

  test('resumes for a command and for a request to a preview when idleness has paused it, and is billed for storage alone', async () => {
    await begin();
    // The worker looks each 1.5 seconds: its looks alone take too little processor time to keep the sandbox active.
    const lifecycle = { on_idle: 'pause', idle_timeout_secs: 15 };
    const id = await create(['sh', '-c', COUNTER], { network: { enabled: false }, lifecycle });
    const count = async () => inside(id, 'echo > /tmp/ask; cat /tmp/answer');
    const untilPaused = async () => {
      const { body } = await untilStatus(client, id, 'stopped');
      const record = (await readRecord(places(id)))!;
      expect([body.stop_reason, body.paused_at]).toEqual(['idle', body.stopped_at]);
      expect(body.stopped_at).toBe(shortInstant(instantFromMicros(record.end!.endedAt)));
      expect(existsSync(memoryFile(places(id).run))).toBe(true);
      return Math.ceil(record.savedBytes! / 1024 / 1024);
    };
    const show = 'cat /proc/sys/kernel/random/boot_id';
    const boot = await inside(id, show);
    expect(await count()).toBe('1\n');
    await inside(id, `echo kept > /dev/shm/memory; date -s '2001-02-03 04:05:06'`);
    const { body: preview } = await client.post(at(id, 'previews'), { port: 8000 });

    const saved = [await untilPaused()];
    // A read of the sandbox does not resume it.
    expect((await client.get(at(id))).body.status).toBe('stopped');
    expect(await inside(id, `cat /dev/shm/memory; ${show}`)).toBe(`kept\n${boot}`);
    expect(await count()).toBe('2\n');
    expect(Math.abs(Number(await inside(id, 'date +%s')) - Date.now() / 1_000)).toBeLessThan(60);

    saved.push(await untilPaused());
    const answer = await until(
      () => askPreview(preview),
      ({ status }) => status === 200,
    );
    expect(answer.text).toBe('hello\n');
    expect(await count()).toBe('3\n');
    expect(await inside(id, show)).toBe(boot);
    await client.post(at(id, 'stop'), {}, waits('stopped'));

    // A slow machine may have paused it once more.
    const { ran, paused } = await timesOf(id);
    expect(paused.slice(0, 2).map(({ memory_mib }) => memory_mib)).toEqual(saved);
    const own = (row: Record<string, unknown>) => row['sandbox_id'] === id || row['volume_id'] === id;
    const sum = (rows: Record<string, number>[], field: string) =>
      rows.filter(own).reduce((all, row) => all + row[field]!, 0);
    const { body: storage } = await client.get('/v1/billing/usage/storage');
    const { body: compute } = await client.get('/v1/billing/usage/sandbox');
    const stored = paused.reduce((all, { seconds, memory_mib }) => all + seconds * memory_mib, 0);
    expect(sum(storage.rows, 'mib_seconds')).toBeCloseTo(stored, 2);
    expect(sum(compute.rows, 'vcpu_seconds')).toBeCloseTo(ran, 4);
    expect(sum(compute.rows, 'mem_mib_seconds')).toBeCloseTo(ran * 192, 2);
  });

  /** From the runs: how long the sandbox ran, and each time from the end of a run with its memory to the next start. */
  async function timesOf(id: string): Promise<{ ran: number; paused: Pause[] }> {
    return inDatabase(served.dataDir, async (database) => {
      const { rows: runs } = await database.query<{ ran: number }>(
        `select sum(extract(epoch from stopped_at - started_at))::float8 as ran from runs where sandbox_id = $1`,
        [id],
      );
      const { rows: paused } = await database.query<Pause & Record<string, unknown>>(
        `select extract(epoch from coalesce(lead(r.started_at) over (order by r.started_at), p.to_at) - r.stopped_at)::float8
             as seconds, p.memory_mib
         from runs r left join pauses p on p.org_id = r.org_id and p.run_id = r.id
         where r.sandbox_id = $1 order by r.started_at`,
        [id],
      );
      return { ran: runs[0]!.ran, paused: paused.filter(({ memory_mib }) => memory_mib !== null) };
    });
  }
});

interface Pause {
  seconds: number;
  memory_mib: number;
}

async function askPreview({
  origin,
  token,
}: {
  origin: string;
  token: string;
}): Promise<{ status: number | undefined; text: string }> {
  const { host, port } = new URL(origin);
  const headers = { host, authorization: `Bearer ${token}`, prefer: 'wait=60' };
  const sent = httpRequest({ host: '127.0.0.1', port, agent: false, headers });
  sent.end();
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  return { status: answer.statusCode, text: await textOf(answer) };
}
