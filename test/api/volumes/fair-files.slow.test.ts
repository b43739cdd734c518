import { execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import {
  closeSync,
  openSync,
  readdirSync,
  readFileSync,
  statSync,
  truncateSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';
import { codeOf, filesOf, makeVolume } from '../../support/volume-files.js';

const MIB = 1024 ** 2;
const GIB = 1024 ** 3;
/** A copy of this reads holes for longer than any test takes. */
const ENDLESS = 250 * GIB;

let service: TestService;
let a: Client;
let b: Client;
beforeAll(async () => {
  service = await startTestService({ settings: { filePatienceMs: 300 } });
  [a, b] = [await service.newOrg(), await service.newOrg()];
});
afterAll(() => service.close());

/** A copy that the caller can abandon. */
function beginCopy(by: Client, base: string, from: string, to: string) {
  const abandon = new AbortController();
  const answer = fetch(`${by.url}${base}/copy`, {
    method: 'POST',
    headers: { authorization: `Bearer ${by.key}`, 'content-type': 'application/json' },
    body: JSON.stringify({ from, to }),
    signal: abandon.signal,
  }).then(
    async (response) => ({
      status: response.status,
      retryAfter: response.headers.get('retry-after'),
      body: (await response.json()) as any,
    }),
    () => undefined,
  );
  return { answer, abandon: () => abandon.abort() };
}

const incomingOf = (data: string) => readdirSync(join(data, '../incoming'));
const underWay = (data: string, count: number) =>
  until(
    () => Promise.resolve(incomingOf(data)),
    (names) => names.length === count,
  );

function plantSparse(path: string, size: number): void {
  writeFileSync(path, '');
  truncateSync(path, size);
}

test('copies of one organization, as many as it may have, do not stop the files of another', async () => {
  const [mine, other] = [await makeVolume(service, a), await makeVolume(service, b)];
  plantSparse(join(mine.data, 'sparse'), ENDLESS);
  await other.put('file', 'x');
  const copies = Array.from({ length: 40 }, (_, index) => beginCopy(a, mine.base, 'sparse', `copy-${index}`));
  let ended = 0;
  const refused: unknown[] = [];
  const observed = copies.map(async ({ answer }) => {
    const got = await answer;
    ended += 1;
    if (got) refused.push([got.status, got.body.error?.code, got.retryAfter]);
  });
  await until(
    () => Promise.resolve(refused),
    (found) => found.length === 8,
  );
  expect(refused).toEqual(Array.from({ length: 8 }, () => [429, 'rate_limited', '2']));

  for (let round = 0; round < 20; round += 1) expect((await other.stat('file')).status).toBe(200);
  expect(await other.names('/')).toEqual(['/file']);
  expect((await other.put('more', Buffer.alloc(3 * MIB))).status).toBe(200);
  expect((await other.copy('more', 'copied')).status).toBe(200);
  expect((await other.get('copied')).headers.get('content-length')).toBe(String(3 * MIB));
  // The copies are all still under way: nothing of the above waited for them.
  expect(ended).toBe(8);
  await underWay(mine.data, 32);

  for (const { abandon } of copies) abandon();
  await Promise.all(observed);
  await underWay(mine.data, 0);
  expect(await mine.names('/')).toEqual(['/sparse']);
  expect(service.logs.filter((line) => line.includes('request failed'))).toEqual([]);
});

test('a copy keeps holes, and every byte', async () => {
  const volume = await makeVolume(service, a);
  const path = join(volume.data, 'sparse');
  const size = 200 * MIB + 12_345;
  plantSparse(path, size);
  const file = openSync(path, 'r+');
  for (const [at, text] of [
    [0, 'at the top'],
    [64 * 1024 - 3, 'across the border of a block'],
    [70 * MIB, 'x'.repeat(1_000_000)],
    [size - 5, 'at the end'.slice(0, 5)],
  ] as const) {
    writeSync(file, text, at);
  }
  closeSync(file);
  expect((await volume.copy('sparse', 'copied')).status).toBe(200);
  const copied = join(volume.data, 'copied');
  expect(statSync(copied).size).toBe(size);
  expect(statSync(copied).blocks * 512).toBeLessThan(2 * MIB);
  expect(readFileSync(copied).equals(readFileSync(path))).toBe(true);
  // A file without any data.
  plantSparse(path, 30 * MIB);
  expect((await volume.copy('sparse', 'copied')).status).toBe(200);
  expect([statSync(copied).size, statSync(copied).blocks]).toEqual([30 * MIB, 0]);
});

test('a copy ends with its volume, and with the service', async () => {
  const volume = await makeVolume(service, a);
  plantSparse(join(volume.data, 'sparse'), ENDLESS);
  const stopped = await startTestService({ worker: false, beside: service, sameEngine: true });
  const there = beginCopy({ ...a, url: stopped.url }, volume.base, 'sparse', 'copied');
  await underWay(volume.data, 1);
  await stopped.close(120_000);
  expect(await there.answer).toMatchObject({ status: 503, body: { error: { code: 'not_ready' } } });
  await underWay(volume.data, 0);

  const here = beginCopy(a, volume.base, 'sparse', 'copied');
  await underWay(volume.data, 1);
  expect((await a.request('DELETE', `/v1/volumes/${volume.id}`)).status).toBe(200);
  expect(codeOf((await here.answer)!)).toEqual([409, 'volume_deleting']);
  expect(incomingOf(volume.data)).toEqual([]);
});

test('a file too large for its holes to be read is refused', async () => {
  const volume = await makeVolume(service, a);
  plantSparse(join(volume.data, 'sparse'), 2 ** 40);
  const { status, body } = await volume.copy('sparse', 'copied');
  if (status === 200) return console.warn('SKIPPED: this file system copies any size at once');
  expect([status, body.error.code]).toEqual([400, 'invalid_volume_path']);
  expect(body.error.message).toContain('256 GiB');
  expect(incomingOf(volume.data)).toEqual([]);
});

test('all files of a volume together stay below its cap, by the space that they take', async () => {
  const volume = await makeVolume(service, a, { capacity_gib: 1 });
  plantSparse(join(volume.data, 'sparse'), Math.ceil(1.1 * GIB));
  expect((await volume.copy('sparse', 'holes')).status).toBe(200);
  await volume.put('kept', Buffer.alloc(8 * MIB, 'k'));
  const other = await makeVolume(service, a, { capacity_gib: 1 });
  execFileSync('fallocate', ['-l', String(GIB - 20 * MIB), join(other.data, 'planted')]);
  await other.put('kept', Buffer.alloc(8 * MIB, 'k'));
  expect((await other.copy('kept', 'copied')).status).toBe(200);
  expect(codeOf(await other.put('more', Buffer.alloc(8 * MIB, 'm')))).toEqual([507, 'storage_full']);
  expect(codeOf(await other.copy('kept', 'more'))).toEqual([507, 'storage_full']);
  // A replaced file gives its space back.
  expect((await other.put('kept', Buffer.alloc(8 * MIB, 'n'))).status).toBe(200);
  expect(incomingOf(other.data)).toEqual([]);
});

test('a lease that a guest holds on a file stops no thread', async () => {
  const script = `import fcntl,signal,sys,time
signal.signal(signal.SIGIO, signal.SIG_IGN)
fd = open(sys.argv[1], 'r+b')
fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print('held', flush=True)
time.sleep(60)`;
  if (spawnSync('python3', ['--version']).status !== 0)
    return console.warn('the test of leases is SKIPPED: there is no python3');
  const [mine, other] = [await makeVolume(service, a), await makeVolume(service, b)];
  await mine.put('leased', 'x');
  await other.put('file', 'y');
  const holder = spawn('python3', ['-c', script, join(mine.data, 'leased')], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  const exited = once(holder, 'exit');
  try {
    await once(holder.stdout, 'data');
    const reads = Array.from({ length: 8 }, () => mine.get('leased'));
    expect((await other.stat('file')).status).toBe(200);
    for (const { status } of await Promise.all(reads)) expect(status).toBe(403);
    expect(codeOf(await mine.copy('leased', 'copied'))).toEqual([403, 'volume_file_forbidden']);
    expect(holder.exitCode).toBeNull();
  } finally {
    holder.kill('SIGKILL');
    await exited;
  }
});

test('a path has at most 256 names', async () => {
  const volume = await makeVolume(service, a);
  const deep = (names: number) => Array.from({ length: names }, () => 'd').join('/');
  expect((await volume.mkdir(deep(256))).status).toBe(200);
  expect((await volume.stat(deep(256))).status).toBe(200);
  expect(codeOf(await volume.mkdir(deep(257)))).toEqual([400, 'invalid_volume_path']);
  expect((await filesOf(a, volume.id).remove('d', true)).status).toBe(200);
});
