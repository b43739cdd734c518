import { execFileSync, spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { hostRulesOf } from '../../src/engines/microvm/network/host-rules.js';
import { placesOf } from '../../src/engines/microvm/places.js';
import { isAlive } from '../../src/engines/microvm/processes.js';
import { readRecord } from '../../src/engines/microvm/read-record.js';
import { newId } from '../../src/lib/uuid.js';
import { expectRefused, NO_DOCKER, run, urlOf } from '../support/cli.js';
import { makeClient } from '../support/client.js';
import { describeMicrovm, onMachines } from '../support/microvm/needs.js';
import { IMAGE, importTestImage } from '../support/microvm/service.js';
import { until, untilStatus } from '../support/polling.js';
import { cleanUp, launch, makeFolder, ready, stop } from '../support/processes.js';
import { startTestService } from '../support/service.js';
import { capture } from '../support/snapshots.js';

const running = { start: true, wait_for: 'running', wait_timeout: 120 };
const SUBNET = '10.231.64.0/24';

describeMicrovm('sandkeep uninstall of virtual machines', () => {
  let folder: string;
  let dataDir: string;
  beforeAll(() => {
    folder = makeFolder();
    dataDir = join(folder, 'data');
  });
  afterAll(async () => cleanUp(folder));

  const uninstall = async (...more: string[]) =>
    run(['uninstall', '--data-dir', dataDir, '--microvm-addresses', SUBNET, ...NO_DOCKER, ...more]);
  const groups = (instance: string) => {
    const name = createHash('sha256').update(instance).digest('hex').slice(0, 16);
    // It fails when a group of another test vanishes meanwhile.
    return spawnSync('find', ['/sys/fs/cgroup', '-type', 'd', '-name', name], { encoding: 'utf8' }).stdout;
  };
  const table = (instance: string) =>
    execFileSync('nft', ['list', 'tables'], { encoding: 'utf8' }).includes(hostRulesOf(instance).table);
  const routes = () => execFileSync('ip', ['route', 'show', SUBNET], { encoding: 'utf8' });

  test('lists them without --yes, and then ends and removes them, where there is no Docker engine', async () => {
    const fixed = ['--json', '--port', '0', '--preview-host', 'none', '--log-level', 'error'];
    const place = ['--default-disk-mib', '256', '--data-dir', dataDir, '--microvm-addresses', SUBNET];
    const service = await ready(launch(['serve', ...fixed, ...onMachines(), ...place]), dataDir);
    await importTestImage(dataDir);
    const org = { id: '', name: '', slug: '' };
    const client = makeClient(service.url, { org, key: service.firstKey!, keyId: '' });
    const create = async (name: string) => {
      const resources = { vcpus: 1, memory_mib: 192 };
      const spec = { name, image: { type: 'oci', reference: IMAGE }, pull_policy: 'never', resources };
      const { body, text } = await client.post('/v1/sandboxes', spec, running);
      expect(body.status, text).toBe('running');
      return body.id as string;
    };
    const [runs, stops, pauses] = [await create('runs'), await create('stops'), await create('pauses')];
    expect((await capture(client, stops, 'kept'))['error']).toBeNull();
    const snapshot = (await client.get('/v1/snapshots/by-name/kept')).body.id;
    await client.post(`/v1/sandboxes/${stops}/stop`);
    await untilStatus(client, stops, 'stopped');
    await client.post(`/v1/sandboxes/${pauses}/pause`);
    await until(
      () => client.get(`/v1/sandboxes/${pauses}`),
      ({ body }) => body.stop_reason === 'paused',
    );
    expect(await stop(service)).toBe(0);

    const places = placesOf(join(dataDir, 'microvm'), runs);
    const record = (await readRecord(places))!;
    expect(isAlive(record)).toBe(true);
    const listed = await uninstall();
    expectRefused({ ...listed, out: '' }, 'nothing was removed: repeat the command with --yes');
    const instance = /^The installation (\S+) has in the microVM engine/.exec(listed.out)![1]!;
    expect(listed.out.split('\n').slice(1).toSorted()).toEqual(
      [
        '',
        `  sandbox    ${runs} (running)`,
        `  sandbox    ${stops} (stopped)`,
        `  snapshot   ${snapshot}`,
        `  sandbox    ${pauses} (paused)`,
        `  directory  ${join(dataDir, 'microvm')}, without the images`,
      ].toSorted(),
    );
    expect([isAlive(record), table(instance)]).toEqual([true, true]);
    expect(routes()).toContain('blackhole');
    expect(groups(instance)).not.toBe('');

    // That of another installation, which has used virtual machines too.
    const foreign = await startTestService({ worker: false });
    try {
      await foreign.ctx.pool.query(`update instance set runtime = 'microvm'`);
      expectRefused(
        await uninstall('--yes', '--json', '--database-url', urlOf(foreign.database)),
        'has the virtual machines of another installation than the database',
      );
    } finally {
      await foreign.close();
    }
    // A mount below it may be a disk of somebody.
    const mounted = join(dataDir, 'microvm/mounted');
    mkdirSync(mounted);
    execFileSync('mount', ['-t', 'tmpfs', 'none', mounted]);
    expectRefused(await uninstall('--yes', '--json'), `${mounted} is mounted: umount ${mounted}`);
    execFileSync('umount', [mounted]);
    expect([isAlive(record), table(instance)]).toEqual([true, true]);

    const removed = await uninstall('--yes');
    expect(removed).toMatchObject({ code: 0, err: '' });
    expect(removed.out).toContain(`To delete them too: rm -r ${dataDir}\n`);
    expect([isAlive(record), table(instance), routes()]).toEqual([false, false, '']);
    expect(groups(instance)).toBe('');
    expect(readdirSync(join(dataDir, 'microvm'))).toEqual(['images']);
    expect(existsSync(join(dataDir, 'postgres'))).toBe(true);

    const again = await uninstall('--yes', '--json');
    expect(again).toMatchObject({ code: 0, err: '' });
    expect(JSON.parse(again.out)).toMatchObject({
      instance,
      removed: { sandboxes: [], snapshots: [] },
      in_use: [],
    });
  });

  test('an engine that does not answer keeps its objects, and does not keep another from losing its own', async () => {
    const [place, id] = [join(folder, 'both'), newId()];
    mkdirSync(join(place, 'microvm/snapshots'), { recursive: true });
    writeFileSync(join(place, 'microvm/engine-id'), `${id}\n`);
    const stopped = await startTestService({ worker: false });
    try {
      const { pool } = stopped.ctx;
      await pool.query(`update instance set runtime = 'docker'`);
      await pool.query(
        `insert into workers (id, runtime, name, capabilities, vcpus, memory_mib, disk_mib, holder, epoch, expires_at, registered_at)
         values ($1, 'microvm', 'one', '{}', 1, 1, 1, 'gone', 1, now() - interval '1 hour', now())`,
        [id],
      );
      const where = ['--data-dir', place, '--database-url', urlOf(stopped.database), ...NO_DOCKER];
      expectRefused(
        await run(['uninstall', '--yes', '--json', ...where]),
        'no Docker engine answers on /nonexistent/docker.sock',
      );
      expect(readdirSync(place)).not.toContain('microvm');
    } finally {
      await stopped.close();
    }
  });
});
