import { execFileSync } from 'node:child_process';
import { mkdirSync, readdirSync, utimesSync, writeFileSync } from 'node:fs';
import { request as httpRequest } from 'node:http';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { makeClient, type Client } from '../../support/client.js';
import { exchangeRaw, openRaw, requestHead } from '../../support/raw-connection.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';
import { codeOf, encode, filesOf, makeVolume } from '../../support/volume-files.js';

const MIB = 1024 ** 2;

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
});
afterAll(() => service.close());

const newVolume = (more = {}) => makeVolume(service, client, more);
const uploadHead = (base: string, path: string, ...headers: string[]) =>
  requestHead(`PUT ${base}/content`, client.key, `x-msb-file-path: ${encode(path)}`, ...headers);

test('an upload accepts any content-type or none, chunks or a length, an empty body or a large one', async () => {
  const volume = await newVolume();
  for (const contentType of [
    undefined,
    'application/json',
    'text/html; charset=x',
    'nonsense',
    'multipart/form-data',
  ]) {
    const answer = await client.request('PUT', `${volume.base}/content`, {
      headers: {
        'x-msb-file-path': encode('typed'),
        ...(contentType === undefined ? {} : { 'content-type': contentType }),
      },
      body: `{not json ${contentType}`,
    });
    expect(answer.status).toBe(200);
    expect(await volume.text('typed')).toBe(`{not json ${contentType}`);
  }
  // The streaming writer of the official client sends neither a length nor a content-type.
  const head = uploadHead(volume.base, 'chunked', 'transfer-encoding: chunked', 'connection: close');
  const raw = await exchangeRaw(client.url, `${head}3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n`);
  expect(raw).toMatch(/^HTTP\/1.1 200 /);
  expect(await volume.text('chunked')).toBe('abcdefg');
  expect((await volume.put('empty', '')).status).toBe(200);
  expect((await volume.stat('empty')).body.metadata.size).toBe(0);
  expect(await (await volume.get('empty')).arrayBuffer()).toHaveProperty('byteLength', 0);
  // This is above the limit of any other body.
  expect((await volume.put('large', Buffer.alloc(20 * 1024 * 1024, 'x'))).status).toBe(200);
  expect((await volume.stat('large')).body.metadata.size).toBe(20 * 1024 * 1024);
});

test('uploads and downloads of 200 MB are not buffered in memory', async () => {
  const volume = await newVolume();
  const SIZE = 200 * 1024 * 1024;
  const chunk = Buffer.alloc(256 * 1024, 'z');
  // The client is in this process, too: the limit covers both sides.
  let most = 0;
  const before = process.memoryUsage().rss;
  const watch = setInterval(() => (most = Math.max(most, process.memoryUsage().rss - before)), 20);
  let sent = 0;
  const answer = await volume.put(
    'big',
    new ReadableStream(
      {
        pull(controller) {
          if (sent === SIZE) return controller.close();
          sent += chunk.length;
          controller.enqueue(chunk);
        },
      },
      { highWaterMark: 0 },
    ),
  );
  expect(answer.status).toBe(200);
  const down = await volume.get('big');
  let received = 0;
  for await (const part of down.body!) received += (part as Uint8Array).length;
  clearInterval(watch);
  expect(received).toBe(SIZE);
  expect(most).toBeLessThan(130 * 1024 * 1024);
});

test('a slow reader applies back-pressure to the file, and a reader that leaves closes it', async () => {
  const volume = await newVolume();
  await volume.put('big', Buffer.alloc(50 * 1024 * 1024));
  const openFiles = () => readdirSync('/proc/self/fd').length;
  const before = openFiles();
  for (let round = 0; round < 20; round += 1) {
    await new Promise<void>((resolve, reject) => {
      const request = httpRequest(
        `${client.url}${volume.base}/content`,
        {
          headers: { authorization: `Bearer ${client.key}`, 'x-msb-file-path': encode('big') },
          agent: false,
        },
        (response) => {
          response.once('data', () => {
            response.destroy();
            resolve();
          });
        },
      );
      request.on('error', reject).end();
    });
  }
  const left = await until(
    () => Promise.resolve(openFiles()),
    (count) => count <= before,
  );
  expect(left).toBeLessThanOrEqual(before);
});

test('an upload may be slow, any other body may not', async () => {
  const hurried = await startTestService({
    settings: { bodyTimeoutMs: 2_000 },
    worker: false,
    beside: service,
    sameEngine: true,
  });
  try {
    // The other service makes the volume, because a busy machine may need more than two seconds for a body.
    const { id, base } = await makeVolume(service, client);
    const sized = ['content-length: 2', 'connection: close'];
    const create = requestHead('POST /v1/volumes', client.key, 'content-type: application/json', ...sized);
    const late = await exchangeRaw(hurried.url, `${create}{`);
    expect(late).toMatch(/^HTTP\/1.1 408 [^]*"code":"request_timeout"/);
    const upload = uploadHead(base, 'slow', ...sized);
    expect(await exchangeRaw(hurried.url, [`${upload}{`, '}'], 2_700)).toMatch(/^HTTP\/1.1 200 /);
    expect(await filesOf(client, id).text('slow')).toBe('{}');
  } finally {
    await hurried.close();
  }
});

test('an interrupted upload leaves no file and no directory, and keeps the previous content', async () => {
  const volume = await newVolume();
  await volume.put('kept', 'before');
  const incoming = join(volume.data, '../incoming');
  for (const path of ['new/dir/file', 'kept']) {
    for (const head of ['content-length: 1000000', 'transfer-encoding: chunked']) {
      const { socket } = await openRaw(client.url);
      socket.write(uploadHead(volume.base, path, head));
      socket.write(`${head.startsWith('c') ? '' : '3e8\r\n'}${'x'.repeat(500)}`);
      await until(
        () => Promise.resolve(readdirSync(incoming)),
        (names) => names.length === 1,
      );
      socket.destroy();
      await until(
        () => Promise.resolve(readdirSync(incoming)),
        (names) => names.length === 0,
      );
    }
  }
  expect(await volume.names('/')).toEqual(['/kept']);
  expect(await volume.text('kept')).toBe('before');
  expect(service.logs.filter((line) => line.includes('request failed'))).toEqual([]);
});

test('a later upload removes the temporary file of a crashed one', async () => {
  const volume = await newVolume();
  const incoming = join(volume.data, '../incoming');
  writeFileSync(join(incoming, 'left'), 'x');
  writeFileSync(join(incoming, 'under-way'), 'x');
  utimesSync(join(incoming, 'left'), 1, 1);
  await volume.put('file', 'x');
  expect(readdirSync(incoming)).toEqual(['under-way']);
});

test('after concurrent writes of one file the last one wins, and no reader sees a mixture', async () => {
  const volume = await newVolume();
  const SIZE = 300_000;
  await volume.put('shared', Buffer.alloc(SIZE, 'a'));
  const writing = new AbortController();
  const reader = (async () => {
    const seen = new Set<string>();
    while (!writing.signal.aborted) {
      const text = await volume.text('shared');
      seen.add(`${text.length} ${[...new Set(text)].join('')}`);
    }
    return seen;
  })();
  await Promise.all(
    Array.from('bcdefgh', async (letter) => {
      for (let round = 0; round < 5; round += 1) await volume.put('shared', Buffer.alloc(SIZE, letter));
    }),
  );
  writing.abort();
  for (const what of await reader) expect(what).toMatch(new RegExp(`^${SIZE} [a-h]$`));
});

test('a directory with many entries is listed completely', async () => {
  const volume = await newVolume();
  mkdirSync(join(volume.data, 'many'));
  for (let index = 0; index < 5_000; index += 1) writeFileSync(join(volume.data, 'many', `f${index}`), '');
  const names = await volume.names('many');
  expect(new Set(names).size).toBe(5_000);
  expect(names).toEqual(names.toSorted((a, b) => (a < b ? -1 : 1)));
  expect((await volume.remove('many', true)).status).toBe(200);
});

test('an upload larger than the cap of its volume is refused before its body is sent', async () => {
  const volume = await newVolume({ capacity_gib: 1 });
  const head = uploadHead(volume.base, 'large', `content-length: ${1024 ** 3 + 1}`, 'connection: close');
  const answer = await exchangeRaw(client.url, head);
  expect(answer).toMatch(/^HTTP\/1.1 507 /);
  expect(answer).toContain('"details":{"capacity_bytes":1073741824}');
  expect((await volume.put('small', 'x')).status).toBe(200);
  expect(await volume.names('/')).toEqual(['/small']);
});

test('a failed upload takes no room from the next one', async () => {
  const disk = { pathOf: () => '/dev/shm', reserveMib: 1 };
  const narrow = await startForTest({ beside: service, worker: false, disk });
  // The room is not measured again: other programs write there, too.
  await narrow.ctx.disk.stop();
  const room = narrow.ctx.disk.room('volumes')!;
  room.reserveBytes = room.freeBytes - 32 * MIB;
  const owner = makeClient(narrow.url, client);
  const { id } = await makeVolume(narrow, owner);
  const files = filesOf(owner, id);
  await files.put('directory/file', '');
  const large = Buffer.alloc(20 * MIB);
  for (let count = 0; count < 2; count += 1) {
    expect(codeOf(await files.put('directory', large))).toEqual([409, 'volume_file_exists']);
  }
  expect((await files.put('file', large)).status).toBe(200);
});

test('a full disk is reported as full', async () => {
  if (process.getuid!() !== 0) return;
  const volume = await newVolume();
  const parent = join(volume.data, '..');
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', parent]);
  try {
    for (const name of ['data', 'incoming']) mkdirSync(join(parent, name), { mode: 0o777 });
    expect((await volume.put('small', 'x')).status).toBe(200);
    expect(codeOf(await volume.put('large', Buffer.alloc(3 * 1024 * 1024)))).toEqual([507, 'storage_full']);
    expect(codeOf(await volume.put('small', 'y'))).toEqual([200, undefined]);
    expect(readdirSync(join(parent, 'incoming'))).toEqual([]);
  } finally {
    execFileSync('umount', [parent]);
  }
});

test('uploads and downloads leave no file open', async () => {
  const openBelow = () =>
    readdirSync('/proc/self/fd').filter((fd) => {
      try {
        return execFileSync('readlink', [`/proc/${process.pid}/fd/${fd}`], { encoding: 'utf8' }).includes(
          service.volumesDir,
        );
      } catch {
        return false;
      }
    });
  const open = await until(
    () => Promise.resolve(openBelow()),
    (found) => found.length === 0,
  );
  expect(open).toEqual([]);
});
