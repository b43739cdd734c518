import { execFileSync } from 'node:child_process';
import {
  appendFileSync,
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Answer, Client } from './support/client.js';
import { startTestService, type TestService } from './support/service.js';
import { until } from './support/until.js';

const encode = (path: string | Buffer) => Buffer.from(path).toString('base64url');
const linux = process.platform === 'linux';

let service: TestService;
let client: Client;
let outside: string;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
  outside = mkdtempSync(join(tmpdir(), 'sandkeep-outside-'));
  writeFileSync(join(outside, 'secret'), 'SECRET');
});
afterAll(async () => {
  await service.close();
  rmSync(outside, { recursive: true });
});

let made = 0;
/** A volume, with the directory that guests would see, and its operations. */
async function newVolume(more: Record<string, unknown> = {}) {
  made += 1;
  const { body } = await client.post('/v1/volumes', { name: `volume-${made}`, ...more });
  const data = await service.ctx.volumes.ensure(client.org.id, body.id);
  return { id: body.id as string, data, ...filesOf(client, body.id) };
}

function filesOf(by: Client, id: string) {
  const base = `/v1/volumes/${id}/files`;
  const headers = (path: string | Buffer) => ({ 'x-msb-file-path': encode(path) });
  const put = (path: string, body: string | Buffer | ReadableStream) =>
    fetch(`${by.url}${base}/content`, {
      method: 'PUT',
      headers: { ...headers(path), authorization: `Bearer ${by.key}` },
      body: body as string,
      ...({ duplex: 'half' } as object),
    }).then(async (response) => ({ status: response.status, body: (await response.json()) as any }));
  const get = (path: string) =>
    fetch(`${by.url}${base}/content`, {
      headers: { ...headers(path), authorization: `Bearer ${by.key}` },
    });
  return {
    base,
    put,
    get,
    text: async (path: string) => (await get(path)).text(),
    list: (path: string) => by.request('GET', base, { headers: headers(path) }),
    names: async (path: string): Promise<string[]> =>
      (await by.request('GET', base, { headers: headers(path) })).body.entries.map(
        (entry: any) => entry.path,
      ),
    stat: (path: string | Buffer) => by.request('GET', `${base}/stat`, { headers: headers(path) }),
    exists: (path: string) => by.request('GET', `${base}/exists`, { headers: headers(path) }),
    remove: (path: string, recursive?: boolean) =>
      by.request('DELETE', base, {
        headers: {
          ...headers(path),
          ...(recursive === undefined ? {} : { 'x-msb-file-recursive': String(recursive) }),
        },
      }),
    mkdir: (path: string) => by.post(`${base}/mkdir`, { path }),
    copy: (from: string, to: string) => by.post(`${base}/copy`, { from, to }),
    rename: (from: string, to: string) => by.post(`${base}/rename`, { from, to }),
  };
}

const codeOf = ({ status, body }: Pick<Answer, 'status' | 'body'>) => [status, body?.error?.code];

test('a file is written, read, looked at, listed and removed under every way to write its path', async () => {
  const volume = await newVolume();
  expect(await volume.put('/docs/a b ü.txt', 'hello')).toEqual({
    status: 200,
    body: { message: 'the file is written' },
  });
  for (const path of ['docs/a b ü.txt', '/docs/a b ü.txt', './docs//a b ü.txt', '//docs/./a b ü.txt/']) {
    const read = await volume.get(path);
    expect([read.status, await read.text()]).toEqual([200, 'hello']);
    expect(Object.fromEntries(read.headers)).toMatchObject({
      'content-type': 'application/octet-stream',
      'content-length': '5',
      'x-content-type-options': 'nosniff',
    });
    expect((await volume.stat(path)).body.metadata.path).toBe('/docs/a b ü.txt');
    expect((await volume.exists(path)).body).toEqual({ exists: true });
  }
  const { metadata } = (await volume.stat('docs/a b ü.txt')).body;
  expect(metadata).toMatchObject({ kind: 'file', size: 5, mode: 0o666, readonly: false });
  expect([metadata.uid, metadata.gid]).toEqual([process.getuid!(), process.getgid!()]);
  expect(Math.abs(Date.parse(metadata.modified_at) - Date.now())).toBeLessThan(60_000);
  for (const path of ['.', '/', './', '//']) {
    expect(await volume.names(path)).toEqual(['/docs']);
    expect((await volume.stat(path)).body.metadata).toMatchObject({ path: '/', kind: 'directory' });
  }
  expect(await volume.names('docs')).toEqual(['/docs/a b ü.txt']);
  expect((await volume.remove('docs/a b ü.txt', false)).status).toBe(200);
  expect((await volume.exists('docs/a b ü.txt')).body).toEqual({ exists: false });
  expect(codeOf(await volume.stat('docs/a b ü.txt'))).toEqual([404, 'volume_file_not_found']);
  expect((await volume.get('docs/a b ü.txt')).status).toBe(404);
});

test('the root is for nobody else, the data in it for every guest user', async () => {
  const volume = await newVolume();
  expect(statSync(service.volumesDir).mode & 0o777).toBe(0o700);
  expect(statSync(volume.data).mode & 0o777).toBe(0o777);
  await volume.put('made/below/file', 'x');
  expect(statSync(join(volume.data, 'made/below')).mode & 0o777).toBe(0o777);
});

test('an upload takes any content-type or none, chunks or a length, an empty body or a large one', async () => {
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
  // As the streaming writer sends it: without a length and without a content-type.
  const raw = await rawRequest(
    `PUT ${volume.base}/content HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${client.key}\r\n` +
      `x-msb-file-path: ${encode('chunked')}\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n` +
      '3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n',
  );
  expect(raw).toMatch(/^HTTP\/1.1 200 /);
  expect(await volume.text('chunked')).toBe('abcdefg');
  expect((await volume.put('empty', '')).status).toBe(200);
  expect((await volume.stat('empty')).body.metadata.size).toBe(0);
  expect(await (await volume.get('empty')).arrayBuffer()).toHaveProperty('byteLength', 0);
  // More than any other body may be.
  expect((await volume.put('large', Buffer.alloc(20 * 1024 * 1024, 'x'))).status).toBe(200);
  expect((await volume.stat('large')).body.metadata.size).toBe(20 * 1024 * 1024);
});

test('the path header is base64url; padding does no harm, anything else is refused by name', async () => {
  const volume = await newVolume();
  await volume.put('ab', 'x');
  const withHeader = (header?: string) =>
    client.request('GET', `${volume.base}/stat`, {
      headers: header === undefined ? {} : { 'x-msb-file-path': header },
    });
  expect((await withHeader('YWI=')).status).toBe(200);
  expect((await withHeader('YWI')).status).toBe(200);
  for (const header of [
    'YWJ',
    'Y',
    '!!!!',
    'YW I',
    'YWI==x',
    '/+/+',
    encode(Buffer.from([0xff, 0xfe])),
    'YWI, YWI',
  ]) {
    expect(codeOf(await withHeader(header)), header).toEqual([400, 'invalid_volume_path']);
  }
  const missing = await withHeader();
  expect([...codeOf(missing), missing.body.error.details]).toEqual([
    400,
    'invalid_request',
    { parameter: 'x-msb-file-path' },
  ]);
  const recursive = await client.request('DELETE', volume.base, {
    headers: { 'x-msb-file-path': encode('ab'), 'x-msb-file-recursive': 'yes' },
  });
  expect(codeOf(recursive)).toEqual([400, 'invalid_request']);
});

test('no path leaves the volume', async () => {
  const volume = await newVolume();
  await volume.put('in/file', 'x');
  const long = 'x'.repeat(256);
  for (const path of [
    '..',
    '../',
    '/..',
    'in/..',
    'in/../..',
    'in/../../../etc/passwd',
    '/../../etc/passwd',
    'a\0b',
    '',
    long,
    `in/${long}`,
    'y/'.repeat(2100),
  ]) {
    const refused = [
      await volume.list(path === '' ? '' : path),
      await volume.stat(path),
      await volume.exists(path),
      await volume.put(path, 'x'),
      await volume.remove(path, true),
      ...(path.includes('\0')
        ? []
        : [
            await volume.mkdir(path),
            await volume.copy('in/file', path),
            await volume.copy(path, 'copy'),
            await volume.rename('in/file', path),
            await volume.rename(path, 'renamed'),
          ]),
    ];
    for (const answer of refused) {
      expect([path.slice(0, 30), answer.status, answer.body.error.code]).toEqual([
        path.slice(0, 30),
        400,
        path === '' && answer.body.error.details !== null ? expect.any(String) : 'invalid_volume_path',
      ]);
      expect(JSON.stringify(answer.body)).not.toContain(service.volumesDir);
    }
  }
  // What looks like an escape in another notation is a name like any other.
  for (const path of ['%2e%2e', '..%2fx', '...', '..\\..', 'C:\\x', '~', '-rf']) {
    expect((await volume.put(path, path)).status).toBe(200);
    expect(await volume.text(path)).toBe(path);
  }
  expect(readFileSync(join(outside, 'secret'), 'utf8')).toBe('SECRET');
});

test('names may be anything that is text: unicode, newlines, 255 bytes', async () => {
  const volume = await newVolume();
  const names = [
    'zeile\nzwei',
    '名前',
    '🙂',
    'é'.repeat(127),
    'x'.repeat(255),
    ' ',
    '"\'',
    '\u202etxt',
    '\ufeffbom',
  ];
  for (const name of names)
    expect([name, (await volume.put(name, encode(name))).status]).toEqual([name, 200]);
  expect(await volume.names('/')).toEqual(names.map((name) => `/${name}`).sort((a, b) => (a < b ? -1 : 1)));
  for (const name of names) {
    expect(await volume.text(name)).toBe(encode(name));
    expect((await volume.rename(name, `renamed/${name}`)).status).toBe(200);
  }
  expect(await volume.names('/')).toEqual(['/renamed']);
  // What is no text cannot be said in JSON: it is not shown, and goes with its directory.
  mkdirSync(join(volume.data, 'bytes'));
  writeFileSync(Buffer.concat([Buffer.from(`${volume.data}/bytes/`), Buffer.from([0x66, 0xff])]), '');
  expect(await volume.names('bytes')).toEqual([]);
  expect((await volume.remove('bytes', true)).status).toBe(200);
});

test('directories are made with those they are in; files are copied, renamed and removed as rename(2) has it', async () => {
  const volume = await newVolume();
  expect((await volume.mkdir('/a/b/c')).status).toBe(200);
  expect((await volume.mkdir('a/b/c/')).status).toBe(200);
  expect((await volume.mkdir('/')).status).toBe(200);
  await volume.put('a/b/c/file', 'one');
  chmodSync(join(volume.data, 'a/b/c/file'), 0o4751);
  expect((await volume.copy('a/b/c/file', 'deep/er/copy')).status).toBe(200);
  expect(await volume.text('deep/er/copy')).toBe('one');
  // Permissions go with it, the right to become somebody else does not.
  expect(lstatSync(join(volume.data, 'deep/er/copy')).mode & 0o7777).toBe(0o751);
  expect((await volume.copy('a/b/c/file', 'a/b/c/file')).status).toBe(200);
  expect(await volume.text('a/b/c/file')).toBe('one');
  expect((await volume.rename('a/b/c/file', 'x/y/moved')).status).toBe(200);
  expect((await volume.rename('a', 'x/a')).status).toBe(200);
  expect(await volume.names('x')).toEqual(['/x/a', '/x/y']);
  expect(await volume.names('/')).toEqual(['/deep', '/x']);

  await volume.put('file', 'two');
  expect((await volume.rename('file', 'x/y/moved')).status).toBe(200);
  expect(await volume.text('x/y/moved')).toBe('two');
  const refused: [Promise<Pick<Answer, 'status' | 'body'>>, [number, string]][] = [
    [volume.remove('x', false), [409, 'volume_directory_not_empty']],
    [volume.remove('x'), [409, 'volume_directory_not_empty']],
    [volume.remove('/', true), [400, 'invalid_volume_path']],
    [volume.remove('missing', true), [404, 'volume_file_not_found']],
    [volume.remove('x/y/moved/below'), [400, 'invalid_volume_path']],
    [volume.rename('missing', 'made/to'), [404, 'volume_file_not_found']],
    [volume.rename('x/y/moved', 'deep'), [409, 'volume_file_exists']],
    [volume.rename('x', 'x/y/moved'), [400, 'invalid_volume_path']],
    [volume.rename('deep', 'x'), [409, 'volume_directory_not_empty']],
    [volume.rename('x', 'x/below'), [400, 'invalid_volume_path']],
    [volume.rename('/', 'x'), [400, 'invalid_volume_path']],
    [volume.rename('x', '.'), [400, 'invalid_volume_path']],
    [volume.copy('x', 'z'), [400, 'invalid_volume_path']],
    [volume.copy('x/y/moved', 'x'), [409, 'volume_file_exists']],
    [volume.copy('missing', 'z'), [404, 'volume_file_not_found']],
    [volume.put('x', 'data'), [409, 'volume_file_exists']],
    [volume.put('/', 'data'), [400, 'invalid_volume_path']],
    [volume.put('x/y/moved/below', 'data'), [400, 'invalid_volume_path']],
    [volume.mkdir('x/y/moved'), [400, 'invalid_volume_path']],
    [volume.list('x/y/moved'), [400, 'invalid_volume_path']],
    [volume.list('missing'), [404, 'volume_file_not_found']],
  ];
  for (const [index, [answer, expected]] of refused.entries()) {
    expect([index, ...codeOf(await answer)]).toEqual([index, ...expected]);
  }
  expect((await volume.get('x')).status).toBe(400);
  expect((await volume.exists('x/y/moved/below')).body).toEqual({ exists: false });
  expect(existsSync(join(volume.data, 'made'))).toBe(false);
  expect((await volume.remove('x', true)).status).toBe(200);
  await volume.mkdir('empty');
  expect((await volume.remove('empty', false)).status).toBe(200);
  expect((await volume.remove('deep', true)).status).toBe(200);
  expect(await volume.names('/')).toEqual([]);
});

test('a file that is replaced keeps its permissions and its owner', async () => {
  const volume = await newVolume();
  await volume.put('script', 'v1');
  chmodSync(join(volume.data, 'script'), 0o6755);
  await volume.put('script', 'v2');
  expect(await volume.text('script')).toBe('v2');
  expect((await volume.stat('script')).body.metadata.mode).toBe(0o755);
  chmodSync(join(volume.data, 'script'), 0o444);
  expect((await volume.stat('script')).body.metadata.readonly).toBe(true);
});

describe.runIf(linux)('what guests plant', () => {
  test('a symlink is never followed, by whatever operation, and can be removed, renamed and replaced', async () => {
    const volume = await newVolume();
    symlinkSync(join(outside, 'secret'), join(volume.data, 'to-file'));
    symlinkSync(outside, join(volume.data, 'to-dir'));
    symlinkSync('../../../../../../../../etc', join(volume.data, 'relative'));
    mkdirSync(join(volume.data, 'real'));
    writeFileSync(join(volume.data, 'real/file'), 'inside');
    symlinkSync('real', join(volume.data, 'inside'));
    symlinkSync('/proc/self/root', join(volume.data, 'root'));
    symlinkSync('loop', join(volume.data, 'loop'));
    symlinkSync('nowhere', join(volume.data, 'dangling'));

    expect(await volume.names('/')).toEqual(['/real']);
    for (const path of [
      'to-file',
      'to-dir',
      'to-dir/secret',
      'relative/passwd',
      'inside/file',
      'root/etc/passwd',
      'loop',
      'dangling',
    ]) {
      expect([path, (await volume.get(path)).status]).toEqual([path, 404]);
      expect([path, ...codeOf(await volume.stat(path))]).toEqual([path, 404, 'volume_file_not_found']);
      expect((await volume.exists(path)).body).toEqual({ exists: false });
      expect((await volume.copy(path, 'stolen')).status).toBe(404);
      expect((await volume.list(path)).status).toBe(404);
    }
    for (const path of ['to-dir/new', 'to-dir/secret', 'inside/new', 'to-dir/a/b']) {
      expect([path, (await volume.put(path, 'PWNED')).status]).toEqual([path, 404]);
      expect((await volume.mkdir(path)).status).toBe(404);
      expect((await volume.remove(path, true)).status).toBe(404);
      expect((await volume.rename(path, 'stolen')).status).toBe(404);
      expect((await volume.rename('real', path)).status).toBe(404);
    }
    expect(existsSync(join(volume.data, 'stolen'))).toBe(false);
    expect(readdirSync(outside)).toEqual(['secret']);

    // The link itself is the volume's.
    expect((await volume.put('to-file', 'mine now')).status).toBe(200);
    expect(await volume.text('to-file')).toBe('mine now');
    expect((await volume.rename('to-dir', 'real/moved-link')).status).toBe(200);
    expect((await volume.remove('loop')).status).toBe(200);
    expect((await volume.remove('real', true)).status).toBe(200);
    expect(readFileSync(join(outside, 'secret'), 'utf8')).toBe('SECRET');
  });

  test('pipes, sockets and devices neither block a request nor are opened by one', async () => {
    const volume = await newVolume();
    execFileSync('mkfifo', [join(volume.data, 'pipe')]);
    if (process.getuid!() === 0) execFileSync('mknod', [join(volume.data, 'zero'), 'c', '1', '5']);
    else execFileSync('mkfifo', [join(volume.data, 'zero')]);
    await volume.put('file', 'x');
    for (const path of ['pipe', 'zero']) {
      expect((await volume.get(path)).status).toBe(404);
      expect((await volume.stat(path)).status).toBe(404);
      expect((await volume.copy(path, 'copy')).status).toBe(404);
      expect((await volume.list(path)).status).toBe(404);
      expect((await volume.list(`${path}/x`)).status).toBe(400);
    }
    expect(await volume.names('/')).toEqual(['/file']);
    expect((await volume.put('pipe', 'a file now')).status).toBe(200);
    expect(await volume.text('pipe')).toBe('a file now');
    expect((await volume.remove('zero')).status).toBe(200);
  });

  test('a directory that is swapped for a symlink while requests run never leads outside', async () => {
    const volume = await newVolume();
    mkdirSync(join(outside, 'sub'), { recursive: true });
    writeFileSync(join(outside, 'sub/file'), 'SECRET');
    const [door, kept] = [join(volume.data, 'door'), join(volume.data, 'kept')];
    mkdirSync(join(door, 'sub'), { recursive: true });
    writeFileSync(join(door, 'sub/file'), 'inside');
    let swapping = true;
    const swaps = (async () => {
      let count = 0;
      while (swapping) {
        // A request may have made the directory anew while there was none.
        renameSync(door, kept);
        attempt(() => symlinkSync(outside, door), door);
        await new Promise(setImmediate);
        unlinkSync(door);
        attempt(() => renameSync(kept, door), door);
        await new Promise(setImmediate);
        count += 1;
      }
      return count;
    })();
    const seen = new Set<string>();
    const rounds = Array.from({ length: 8 }, async (_, worker) => {
      for (let round = 0; round < 40; round += 1) {
        const mine = `door/sub/new-${worker}-${round}`;
        const [read, written, listed] = await Promise.all([
          volume.get('door/sub/file').then(async (answer) => (answer.status === 200 ? answer.text() : '')),
          volume.put(mine, 'x'),
          volume.list('door'),
          volume.mkdir(`door/sub/dir-${worker}-${round}`),
          volume.copy('door/sub/file', `door/sub/copy-${worker}-${round}`),
        ]);
        seen.add(`read ${read}`).add(`written ${written.status}`).add(`listed ${listed.status}`);
        seen.add(`removed ${(await volume.remove(mine)).status}`);
        await volume.remove(`door/sub/dir-${worker}-${round}`, true);
      }
    });
    await Promise.all(rounds);
    swapping = false;
    expect(await swaps).toBeGreaterThan(20);
    expect([...seen].filter((what) => what.startsWith('read '))).not.toContain('read SECRET');
    expect([...seen].filter((what) => / 5\d\d$/.test(what))).toEqual([]);
    expect(readdirSync(outside).toSorted()).toEqual(['secret', 'sub']);
    expect(readdirSync(join(outside, 'sub'))).toEqual(['file']);
    // The race was one: both sides of the door were met.
    expect(seen).toContain('read inside');
    expect(seen).toContain('read ');
  }, 60_000);

  test('removing a tree does not follow links that are swapped in meanwhile', async () => {
    const volume = await newVolume();
    const victim = mkdtempSync(join(outside, 'victim-'));
    for (let index = 0; index < 50; index += 1) writeFileSync(join(victim, `f${index}`), '');
    for (let round = 0; round < 10; round += 1) {
      const tree = join(volume.data, 'tree');
      for (let index = 0; index < 20; index += 1) {
        mkdirSync(join(tree, `d${index}/e`), { recursive: true });
        writeFileSync(join(tree, `d${index}/e/f0`), '');
      }
      const removing = volume.remove('tree', true);
      let done = false;
      void removing.finally(() => (done = true));
      for (let index = 0; !done; index = (index + 1) % 20) {
        try {
          renameSync(join(tree, `d${index}`), join(volume.data, `away-${round}-${index}`));
          symlinkSync(victim, join(tree, `d${index}`));
        } catch {
          // Removed already.
        }
        await new Promise(setImmediate);
      }
      expect([200, 404]).toContain((await removing).status);
    }
    expect(readdirSync(victim)).toHaveLength(50);
    rmSync(victim, { recursive: true });
  });

  test('a tree of any depth is removed', async () => {
    const volume = await newVolume();
    execFileSync('perl', [
      '-e',
      'chdir $ARGV[0]; for (1..1500) { mkdir "deep-directory"; chdir "deep-directory"; open(F, ">f"); symlink("/", "l"); }',
      volume.data,
    ]);
    expect((await volume.remove('deep-directory', true)).status).toBe(200);
    expect(readdirSync(volume.data)).toEqual([]);
  });

  test('times long past are said rightly', async () => {
    const volume = await newVolume();
    await volume.put('old', 'x');
    execFileSync('touch', ['-d', '@-1000000000', join(volume.data, 'old')]);
    expect((await volume.stat('old')).body.metadata.modified_at).toBe('1938-04-24T22:13:20.000Z');
  });

  test('a file that grows or shrinks while it is read is answered with the promised length or cut off', async () => {
    const volume = await newVolume();
    const path = join(volume.data, 'changing');
    writeFileSync(path, Buffer.alloc(30 * 1024 * 1024, 'a'));
    const growing = await volume.get('changing');
    appendFileSync(path, Buffer.alloc(1024, 'b'));
    expect((await growing.arrayBuffer()).byteLength).toBe(30 * 1024 * 1024);
    const shrinking = await volume.get('changing');
    truncateSync(path, 1024);
    await expect(shrinking.arrayBuffer()).rejects.toThrow();
  });
});

test('200 MB go up and down without being held in memory', async () => {
  const volume = await newVolume();
  const SIZE = 200 * 1024 * 1024;
  const chunk = Buffer.alloc(256 * 1024, 'z');
  // The client's side is in this process as well: both sides together stay small.
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
}, 60_000);

test('a reader who is slow holds the file back, one who leaves lets it go', async () => {
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
  await until(
    () => Promise.resolve(openFiles()),
    (count) => count <= before,
  );
});

test('an upload that is cut off leaves nothing: neither a file, nor directories, nor what came before', async () => {
  const volume = await newVolume();
  await volume.put('kept', 'before');
  const incoming = join(volume.data, '../incoming');
  for (const path of ['new/dir/file', 'kept']) {
    for (const head of ['content-length: 1000000', 'transfer-encoding: chunked']) {
      const socket = connect(Number(new URL(client.url).port), '127.0.0.1');
      socket.on('error', () => undefined);
      socket.write(
        `PUT ${volume.base}/content HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${client.key}\r\n` +
          `x-msb-file-path: ${encode(path)}\r\n${head}\r\n\r\n${head.startsWith('c') ? '' : '3e8\r\n'}${'x'.repeat(500)}`,
      );
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

test('what a crash left on its way in is removed by a later upload', async () => {
  const volume = await newVolume();
  const incoming = join(volume.data, '../incoming');
  writeFileSync(join(incoming, 'left'), 'x');
  writeFileSync(join(incoming, 'under-way'), 'x');
  utimesSync(join(incoming, 'left'), 1, 1);
  await volume.put('file', 'x');
  expect(readdirSync(incoming)).toEqual(['under-way']);
});

test('of writes of one file at once the last wins and no reader sees a mixture', async () => {
  const volume = await newVolume();
  const SIZE = 300_000;
  await volume.put('shared', Buffer.alloc(SIZE, 'a'));
  let writing = true;
  const reader = (async () => {
    const seen = new Set<string>();
    while (writing) {
      const text = await volume.text('shared');
      seen.add(`${text.length} ${[...new Set(text)].join('')}`);
    }
    return seen;
  })();
  await Promise.all(
    [...'bcdefgh'].map(async (letter) => {
      for (let round = 0; round < 5; round += 1) await volume.put('shared', Buffer.alloc(SIZE, letter));
    }),
  );
  writing = false;
  for (const what of await reader) expect(what).toMatch(new RegExp(`^${SIZE} [a-h]$`));
});

test('a directory with many entries is listed whole', async () => {
  const volume = await newVolume();
  mkdirSync(join(volume.data, 'many'));
  for (let index = 0; index < 5_000; index += 1) writeFileSync(join(volume.data, 'many', `f${index}`), '');
  const names = await volume.names('many');
  expect(new Set(names).size).toBe(5_000);
  expect(names).toEqual(names.toSorted((a, b) => (a < b ? -1 : 1)));
  expect((await volume.remove('many', true)).status).toBe(200);
}, 60_000);

test('an upload larger than the cap of its volume is refused, and leaves nothing', async () => {
  const volume = await newVolume({ capacity_gib: 1 });
  // A gibibyte would take long: the store holds the cap in whole ones.
  await service.ctx.pool.query('update volumes set capacity_gib = 1 where id = $1', [volume.id]);
  expect((await volume.put('small', 'x')).status).toBe(200);
  expect(await volume.names('/')).toEqual(['/small']);
});

test('a full disk is said to be full', async () => {
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

test('a volume that is being deleted can be read and not be written; purged, it is gone with its data', async () => {
  const volume = await newVolume();
  await volume.put('file', 'x');
  await client.delete(`/v1/volumes/${volume.id}`);
  expect(await volume.text('file')).toBe('x');
  for (const answer of [
    await volume.put('file', 'y'),
    await volume.mkdir('dir'),
    await volume.remove('file'),
    await volume.copy('file', 'copy'),
    await volume.rename('file', 'renamed'),
  ]) {
    expect(codeOf(answer)).toEqual([409, 'volume_deleting']);
  }
  await service.ctx.pool.query('update volumes set purge_at = now() where id = $1', [volume.id]);
  await until(
    () => Promise.resolve(existsSync(join(volume.data, '..'))),
    (exists) => !exists,
  );
  expect(codeOf(await volume.list('/'))).toEqual([404, 'volume_not_found']);
  expect(existsSync(join(volume.data, '..'))).toBe(false);
});

test('the data of a volume whose purge was cut short by a crash goes at the next start, and no other', async () => {
  const [purged, kept] = [await newVolume(), await newVolume()];
  const unknown = join(service.volumesDir, client.org.id, '00000000-0000-7000-8000-000000000000');
  mkdirSync(unknown);
  await service.ctx.pool.query(
    `update volumes set status = 'deleting', purge_at = now(), removed_at = now() where id = $1`,
    [purged.id],
  );
  const { removeLeftData } = await import('../src/volumes/jobs.js');
  await removeLeftData(service.ctx, new AbortController().signal);
  expect([existsSync(purged.data), existsSync(kept.data), existsSync(unknown)]).toEqual([false, true, true]);
});

test('the volume of another organization and one that does not exist are the same 404', async () => {
  const volume = await newVolume();
  await volume.put('file', 'x');
  const intruder = await service.newOrg();
  for (const id of [volume.id, '00000000-0000-7000-8000-000000000000']) {
    const theirs = filesOf(intruder, id);
    for (const answer of [
      await theirs.list('/'),
      await theirs.stat('file'),
      await theirs.exists('file'),
      await theirs.put('file', 'PWNED'),
      await theirs.remove('file', true),
      await theirs.mkdir('dir'),
      await theirs.copy('file', 'copy'),
      await theirs.rename('file', 'renamed'),
    ]) {
      expect(answer.body.error).toEqual({
        code: 'volume_not_found',
        message: 'volume not found',
        details: null,
      });
    }
    expect((await theirs.get('file')).status).toBe(404);
  }
  expect(readdirSync(volume.data)).toEqual(['file']);
  expect(existsSync(join(service.volumesDir, intruder.org.id))).toBe(false);
});

test('the host volume has files like any other', async () => {
  const { body } = await client.get('/v1/volumes/default');
  const host = filesOf(client, body.id);
  expect((await host.put('src/main.py', 'print(1)')).status).toBe(200);
  expect(await host.names('src')).toEqual(['/src/main.py']);
});

test('no file stays open', async () => {
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
  await until(
    () => Promise.resolve(openBelow()),
    (open) => open.length === 0,
  );
  await sleep(0);
});

/** Tries again and again, clearing away what is in the way. */
function attempt(what: () => void, inTheWay: string): void {
  for (;;) {
    try {
      return what();
    } catch {
      rmSync(inTheWay, { recursive: true, force: true });
    }
  }
}

function rawRequest(text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect(Number(new URL(client.url).port), '127.0.0.1');
    let answer = '';
    socket.on('data', (chunk) => (answer += String(chunk)));
    socket.on('end', () => resolve(answer)).on('error', reject);
    socket.write(text);
  });
}
