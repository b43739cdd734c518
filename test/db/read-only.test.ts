import { execFileSync, spawnSync } from 'node:child_process';
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { makeClient } from '../support/client.js';
import { until } from '../support/polling.js';
import { cleanUp, launch, launchServe, makeFolder, serve, stop, type Served } from '../support/processes.js';

const reason = whyNot();
if (reason !== undefined) console.warn(`the tests of a read-only data directory are SKIPPED: ${reason}`);

/** File systems of files, which the tests make read-only. */
describe.skipIf(reason !== undefined)(`a data directory${reason ? ` — SKIPPED: ${reason}` : ''}`, () => {
  let folder: string;
  let disk: string;
  let root: string;
  let service: Served | undefined;

  beforeEach(() => {
    folder = makeFolder();
    [disk, root] = [join(folder, 'disk'), join(folder, 'root')];
    writeFileSync(disk, '');
    truncateSync(disk, 1024 ** 3);
    mkdirSync(root);
  });
  afterEach(async () => {
    if (service) await stop(service);
    service = undefined;
    spawnSync('umount', [root]);
    await cleanUp(folder);
  });

  function mount(options = 'loop', file = disk): void {
    execFileSync('mount', ['-o', options, file, root]);
  }

  test('that becomes read-only makes the service unready; nothing acknowledged is lost, and it is named at the next start', async () => {
    execFileSync('mkfs.ext4', ['-q', '-m', '0', disk]);
    mount();
    const dataDir = join(root, 'data');
    service = await serve(dataDir);
    const key = service.firstKey!;
    const connect = ({ url }: Served) =>
      makeClient(url, { org: { id: '', name: '', slug: '' }, key, keyId: '' }, { patience: 0 });
    const client = connect(service);
    for (const name of ['one', 'two']) expect((await client.post('/v1/volumes', { name })).status).toBe(200);
    // As the kernel does after an error of the disk.
    mount('remount,abort');
    const refused = await until(
      () => client.post('/v1/volumes', { name: 'three' }),
      ({ status }) => status !== 200,
    );
    expect([refused.status, refused.body.error.code], service.err()).toEqual([503, 'not_ready']);
    const { url } = service;
    await until(
      async () => (await fetch(`${url}/readyz`)).status,
      (status) => status === 503,
    );
    expect((await fetch(`${service.url}/healthz`)).status).toBe(200);
    await stop(service);
    service = undefined;
    const named = /the data directory .* cannot be used: EROFS.*; mount its file system for writing/;
    const next = launchServe(dataDir);
    expect([(await next.exited).code, next.err()]).toEqual([1, expect.stringMatching(named)]);
    expect(next.err()).not.toContain('    at ');
    execFileSync('umount', [root]);
    // A process that got a mount namespace of its own meanwhile, such as a container, may keep the ended file system.
    // The kernel would mount the same one again.
    const copy = join(folder, 'copy');
    execFileSync('cp', ['--sparse=always', disk, copy]);
    spawnSync('e2fsck', ['-fy', copy]);
    mount('loop', copy);
    service = await serve(dataDir);
    const { body } = await connect(service).get('/v1/volumes');
    const names = JSON.stringify(body).match(/"(one|two|three)"/g)!;
    expect(names.toSorted((left, right) => left.localeCompare(right))).toEqual(['"one"', '"two"']);
  });

  test('without free inodes is refused with the remedy', async () => {
    execFileSync('mount', ['-t', 'tmpfs', '-o', 'nr_inodes=2', 'tmpfs', root]);
    mkdirSync(join(root, 'data'));
    const named = expect.stringMatching(/cannot be used: ENOSPC.*; free some space and inodes/);
    const refused = launchServe(join(root, 'data'));
    expect([(await refused.exited).code, refused.err()]).toEqual([1, named]);
    const doctor = launch(['doctor', '--data-dir', join(root, 'data')]);
    expect([(await doctor.exited).code, doctor.out()]).toEqual([1, named]);
  });
});

function whyNot(): string | undefined {
  if (process.getuid?.() !== 0) return 'it needs root';
  for (const program of ['mkfs.ext4', 'e2fsck']) {
    if (spawnSync(program, ['-V']).error)
      return `there is no ${program} (on Debian: apt-get install e2fsprogs)`;
  }
  const loop = spawnSync('losetup', ['--find']);
  return loop.status === 0 ? undefined : 'there is no free loop device';
}
