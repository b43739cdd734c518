import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, readFileSync, rmdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, expect, test } from 'vitest';
import { readRunFile } from '../../src/engines/microvm/identity.js';
import { placesOf } from '../../src/engines/microvm/places.js';
import { isAlive } from '../../src/engines/microvm/processes.js';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { instantFromMicros, shortInstant } from '../../src/lib/instant.js';
import { makeClient, type Client } from '../support/client.js';
import { describeMicrovm, onMachines } from '../support/microvm/needs.js';
import { IMAGE, importTestImage } from '../support/microvm/service.js';
import { until, untilStatus } from '../support/polling.js';
import {
  cleanUp,
  databaseOf,
  kill,
  launch,
  makeFolder,
  ready,
  type LaunchOptions,
  type Served,
} from '../support/processes.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const again = { wait_for: 'running', wait_timeout: 120 };

/** As after a start of the machine. */
const WITH_EMPTY_RUN = ['unshare', '--mount', 'sh', '-c', 'mount -t tmpfs none /run && exec "$@"', 'sh'];

describeMicrovm('a reboot of the machine', () => {
  let folder: string | undefined;
  afterEach(async () => {
    if (folder !== undefined) await cleanUp(folder);
    folder = undefined;
  });

  async function serve(options?: LaunchOptions): Promise<Served> {
    const dataDir = join(folder!, 'data');
    const fixed = ['--json', '--port', '0', '--preview-host', 'none', '--log-level', 'error'];
    const all = ['serve', ...fixed, ...onMachines(), '--default-disk-mib', '256', '--data-dir', dataDir];
    return ready(launch(all, options), dataDir);
  }

  const clientOf = ({ url }: Served, key: string): Client =>
    makeClient(url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });

  test('ends the runs at their last sign of life, and keeps disks and paused memory', async () => {
    folder = makeFolder();
    const first = await serve();
    const key = first.firstKey!;
    await importTestImage(first.dataDir);
    const before = clientOf(first, key);
    await before.post('/v1/volumes', { name: 'data' });
    const create = async (name: string, more: object) => {
      const spec = {
        name,
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 192 },
        ...more,
      };
      const { body } = await before.post('/v1/sandboxes', spec, running);
      expect(body.status, JSON.stringify(body)).toBe('running');
      return body;
    };
    const [lives, sleeps] = await Promise.all([
      create('lives', { mounts: [{ type: 'named', name: 'data', guest: '/data' }] }),
      create('sleeps', { network: { enabled: false } }),
    ]);
    const exec = async (client: Client, { id }: { id: string }, script: string) =>
      (await client.post(`/v1/sandboxes/${id}/exec`, { cmd: 'sh', args: ['-c', script] })).body.stdout;
    await exec(before, lives, 'echo kept | tee /srv/kept > /data/kept; sync');
    await exec(before, sleeps, 'echo remembered > /dev/shm/remembered');
    const paused = await before.post(
      `/v1/sandboxes/${sleeps.id}/pause`,
      {},
      { wait_for: 'paused', wait_timeout: 120 },
    );
    expect([paused.body.status, paused.body.stop_reason], paused.text).toEqual(['stopped', 'paused']);
    const placesIn = ({ id }: { id: string }) => placesOf(join(first.dataDir, 'microvm'), id);
    const places = placesIn(lives);
    const record = (await readRecord(places))!;
    const { link } = (await readRunFile(places.runFile))!;
    expect(linksOf(link!)).toEqual([link]);

    // The machine goes down: every process ends at once, and the kernel has none of its control groups.
    const processes = [record.supervisor.pid, record.monitor!.pid, ...groupProcesses(lives.id)];
    kill('SIGKILL', first.pid, ...processes, ...databaseOf(first.dataDir).all);
    await first.exited;
    await until(
      async () =>
        Promise.resolve([isAlive(record), databaseOf(first.dataDir).all.length, linksOf(link!).length]),
      (left) => left.every((each) => !each),
    );
    const sign = statSync(places.alive, { bigint: true }).mtimeNs / 1_000n;
    await until(
      async () => Promise.resolve([lives, sleeps].flatMap(({ id }) => removeGroups(id))),
      (left) => left.length === 0,
    );
    // It is there again, with another id of its start. A mount over the file of the id would keep file servers from
    // mounting /proc, so the records get another id. Other programs have the numbers and times of the earlier
    // processes.
    const stat = readFileSync(`/proc/${process.pid}/stat`, 'latin1');
    const other = `${process.pid} ${stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]}`;
    const boot = '00000000-0000-4000-8000-000000000001';
    for (const { record: file } of [lives, sleeps].map(placesIn)) {
      const text = readFileSync(file, 'utf8').replace(/^(supervisor|monitor) .*$/gm, `$1 ${other}`);
      writeFileSync(file, text.replace(/^boot .*$/m, `boot ${boot}`));
    }
    const left = (await readRecord(places))!;
    expect([isAlive(left), isAlive({ ...left, boot: record.boot })]).toEqual([false, true]);

    const second = await serve({ under: WITH_EMPTY_RUN });
    const after = clientOf(second, key);
    const { body: ended } = await untilStatus(after, lives.id, 'failed');
    expect([ended.started_at, ended.stopped_at]).toEqual([
      lives.started_at,
      shortInstant(instantFromMicros(sign)),
    ]);
    const { body: usage } = await after.get('/v1/billing/usage/sandbox');
    const billed = usage.rows
      .filter(({ sandbox_id }: any) => sandbox_id === lives.id)
      .reduce((sum: number, row: any) => sum + row.vcpu_seconds, 0);
    const ran = (Date.parse(ended.stopped_at) - Date.parse(ended.started_at)) / 1_000;
    expect(Math.abs(billed - ran)).toBeLessThan(0.01);
    const [started, resumed] = await Promise.all([
      after.post(`/v1/sandboxes/${lives.id}/start`, {}, again),
      after.post(`/v1/sandboxes/${sleeps.id}/resume`, {}, again),
    ]);
    expect(started.body.status, started.text).toBe('running');
    expect(await exec(after, lives, 'cat /srv/kept /data/kept')).toBe('kept\nkept\n');
    expect(resumed.body.status, resumed.text).toBe('running');
    expect(await exec(after, sleeps, 'cat /dev/shm/remembered')).toBe('remembered\n');

    for (const { id } of [lives, sleeps]) await after.delete(`/v1/sandboxes/${id}`);
    await until(
      async () =>
        Promise.resolve([
          ...[lives, sleeps].map(placesIn).filter(({ directory }) => existsSync(directory)),
          ...[lives, sleeps].flatMap(({ id }) => groupsOf(id)),
          ...linksOf(link!),
        ]),
      (left) => left.length === 0,
    );
  });
});

/** The links of the installation to its sandboxes. */
function linksOf(one: string): string[] {
  return readdirSync('/sys/class/net').filter((name) => name.startsWith(one.slice(0, one.indexOf('-') + 1)));
}

/** The control groups of a sandbox, in each of the two versions. */
function groupsOf(sandboxId: string): string[] {
  // It fails when a group of another test vanishes meanwhile.
  const top = spawnSync('find', ['/sys/fs/cgroup', '-maxdepth', '2', '-name', 'sandkeep-microvm*'], {
    encoding: 'utf8',
  });
  return top.stdout
    .split('\n')
    .filter(Boolean)
    .flatMap((directory) => entriesOf(directory).map((name) => join(directory, name, sandboxId)))
    .filter((directory) => existsSync(directory));
}

/** None: the group has vanished meanwhile. */
function entriesOf(directory: string): string[] {
  try {
    return readdirSync(directory);
  } catch {
    return [];
  }
}

function groupProcesses(sandboxId: string): number[] {
  return groupsOf(sandboxId).flatMap((directory) =>
    readFileSync(join(directory, 'cgroup.procs'), 'utf8').split('\n').filter(Boolean).map(Number),
  );
}

/** Returns those that still have a process. */
function removeGroups(sandboxId: string): string[] {
  for (const directory of groupsOf(sandboxId)) {
    try {
      rmdirSync(directory);
    } catch {
      // The kernel has not ended all processes yet.
    }
  }
  return groupsOf(sandboxId);
}
