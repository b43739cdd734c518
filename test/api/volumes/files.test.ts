import { chmodSync, existsSync, lstatSync, mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Answer } from '../../support/answer.js';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';
import { codeOf, encode, filesOf, makeVolume } from '../../support/volume-files.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
});
afterAll(() => service.close());

const newVolume = (more = {}) => makeVolume(service, client, more);

test('a file can be written, read, listed, removed and its metadata read, under every spelling of its path', async () => {
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

test('the root belongs to the service, the data in it is open to every guest user', async () => {
  const volume = await newVolume();
  expect(statSync(service.volumesDir).mode & 0o777).toBe(0o700);
  expect(statSync(volume.data).mode & 0o777).toBe(0o777);
  await volume.put('made/below/file', 'x');
  expect(statSync(join(volume.data, 'made/below')).mode & 0o777).toBe(0o777);
});

test('the path header is base64url, with or without padding; anything else is refused by name', async () => {
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
  const { body: empty } = await client.request('GET', volume.base, { headers: { 'x-msb-file-path': '' } });
  expect(empty.error).toMatchObject({
    code: 'invalid_volume_path',
    message: 'the path is empty: use / for the top',
  });
  const missing = await withHeader();
  expect([...codeOf(missing), missing.body.error.details]).toEqual([
    400,
    'invalid_request',
    { parameter: 'path' },
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
  // Escapes of other notations are ordinary names.
  for (const path of ['%2e%2e', '..%2fx', '...', '..\\..', 'C:\\x', '~', '-rf']) {
    expect((await volume.put(path, path)).status).toBe(200);
    expect(await volume.text(path)).toBe(path);
  }
});

test('a name may be any text: unicode, newlines, 255 bytes', async () => {
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
  expect(await volume.names('/')).toEqual(
    names.map((name) => `/${name}`).toSorted((a, b) => (a < b ? -1 : 1)),
  );
  for (const name of names) {
    expect(await volume.text(name)).toBe(encode(name));
    expect((await volume.rename(name, `renamed/${name}`)).status).toBe(200);
  }
  expect(await volume.names('/')).toEqual(['/renamed']);
  // Bytes that are not UTF-8 have a form of their own, which a name with the same letters does not.
  mkdirSync(join(volume.data, 'bytes'));
  writeFileSync(Buffer.concat([Buffer.from(`${volume.data}/bytes/`), Buffer.from([0x66, 0xff])]), '');
  writeFileSync(join(volume.data, 'bytes', 'f\\xff'), 'letters');
  expect(await volume.names('bytes')).toEqual(['/bytes/f\\x5cxff', '/bytes/f\\xff']);
  expect((await volume.put('bytes/f\\xff', 'bytes')).status).toBe(200);
  expect((await volume.copy('bytes/f\\xff', 'bytes/\\xc3/\\x80')).status).toBe(200);
  expect(await volume.text('bytes/\\xc3/\\x80')).toBe('bytes');
  expect((await volume.rename('bytes/f\\x5cxff', 'bytes/\\xc3/letters')).status).toBe(200);
  expect(await volume.names('bytes/\\xc3')).toEqual(['/bytes/\\xc3/\\x80', '/bytes/\\xc3/letters']);
  expect(await volume.text('bytes/\\xc3/letters')).toBe('letters');
  expect((await volume.remove('bytes/f\\xff')).status).toBe(200);
  expect(await volume.names('bytes')).toEqual(['/bytes/\\xc3']);
  expect(readdirSync(Buffer.from(`${volume.data}/bytes`), 'buffer')).toEqual([Buffer.of(0xc3)]);
  expect((await volume.remove('bytes', true)).status).toBe(200);
});

test('parent directories are created; copies, renames and removals follow rename(2)', async () => {
  const volume = await newVolume();
  expect((await volume.mkdir('/a/b/c')).status).toBe(200);
  expect((await volume.mkdir('a/b/c/')).status).toBe(200);
  expect((await volume.mkdir('/')).status).toBe(200);
  await volume.put('a/b/c/file', 'one');
  chmodSync(join(volume.data, 'a/b/c/file'), 0o4751);
  expect((await volume.copy('a/b/c/file', 'deep/er/copy')).status).toBe(200);
  expect(await volume.text('deep/er/copy')).toBe('one');
  // A copy keeps the permissions, but not setuid and setgid.
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
    [volume.remove('x/y/moved', true), [400, 'invalid_volume_path']],
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

test('a replaced file keeps its permissions and its owner', async () => {
  const volume = await newVolume();
  await volume.put('script', 'v1');
  chmodSync(join(volume.data, 'script'), 0o6755);
  await volume.put('script', 'v2');
  expect(await volume.text('script')).toBe('v2');
  expect((await volume.stat('script')).body.metadata.mode).toBe(0o755);
  chmodSync(join(volume.data, 'script'), 0o444);
  expect((await volume.stat('script')).body.metadata.readonly).toBe(true);
});

test('a volume under deletion is read-only, and its purge removes its data', async () => {
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

test('the next start removes the data of volumes whose purge a crash interrupted, and no other', async () => {
  const [purged, kept] = [await newVolume(), await newVolume()];
  const unknown = join(service.volumesDir, client.org.id, '00000000-0000-7000-8000-000000000000');
  mkdirSync(unknown);
  await service.ctx.pool.query(
    `update volumes set status = 'deleting', purge_at = now(), removed_at = now() where id = $1`,
    [purged.id],
  );
  const { removeLeftData } = await import('../../../src/volumes/jobs.js');
  await removeLeftData(service.ctx, new AbortController().signal);
  expect([existsSync(purged.data), existsSync(kept.data), existsSync(unknown)]).toEqual([false, true, true]);
});

test('a volume of another organization gets the same 404 as an unknown one', async () => {
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
