import { createHash, randomBytes } from 'node:crypto';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { json } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { containerOf, describeDocker, execIn } from '../../support/docker.js';
import { startInside, type Inside } from '../../support/inside.js';
import { until } from '../../support/polling.js';
import { filesIn } from '../../support/sandbox-files.js';
import { codeOf, encode } from '../../support/volume-files.js';

const RECURSIVE = { 'x-msb-file-recursive': 'true' };

describeDocker('the files of a sandbox over HTTP', () => {
  let inside: Inside;
  let id: string;
  let files: ReturnType<typeof filesIn>;
  beforeAll(async () => {
    inside = await startInside();
    id = await inside.start('box');
    files = filesIn(inside.client, id);
  });
  afterAll(() => inside.close());

  const sh = (script: string) => execIn(id, 'sh', '-c', `exec 2>&1; ${script}`);

  test('are not written beside a file that cannot be replaced', async () => {
    // A mount whose file has no name on its disk, and a pipe.
    const before = await sh('ls -a / /etc');
    const refused = await files.put('/etc/hosts', 'mine');
    expect([codeOf(refused), refused.body.error.details]).toEqual([
      [403, 'sandbox_file_forbidden'],
      { errno: 'EBUSY' },
    ]);
    expect(codeOf(await files.put('/proc/self/fd/0', 'mine'))).toEqual([400, 'invalid_sandbox_path']);
    expect(await sh('ls -a / /etc')).toBe(before);
  });

  test('are written, read, listed, copied, renamed and removed, by id and by name', async () => {
    expect((await files.put('/a/b/one.txt', 'hello\n')).body).toEqual({ message: 'the file is written' });
    expect(await sh('cat /a/b/one.txt')).toBe('hello\n');
    const named = filesIn(inside.client, 'by-name/box');
    expect(await named.text('a/b/one.txt')).toBe('hello\n');
    const { body } = await named.stat('/a/b/one.txt');
    expect(body.metadata).toMatchObject({ path: '/a/b/one.txt', kind: 'file', size: 6, mode: 0o644, uid: 0 });
    expect((await files.mkdir('/a/empty')).status).toBe(200);
    expect((await files.copy('/a/b/one.txt', '/a/c/two.txt')).status).toBe(200);
    expect((await files.rename('/a/c/two.txt', '/a/d/three.txt')).status).toBe(200);
    await sh('ln -s /nowhere /a/link; busybox mkfifo /a/pipe; touch "$(printf "/a/\\377")"');
    const { entries } = (await files.list('/a')).body;
    expect(entries.map(({ path, kind }: any) => [path, kind])).toEqual([
      ['/a/\\xff', 'file'],
      ['/a/b', 'directory'],
      ['/a/c', 'directory'],
      ['/a/d', 'directory'],
      ['/a/empty', 'directory'],
      ['/a/link', 'symlink'],
      ['/a/pipe', 'other'],
    ]);
    // A name that is not UTF-8 is reachable by the form in which it is listed.
    expect((await files.put('/a/\\xff', 'bytes')).status).toBe(200);
    expect(await sh('cat "$(printf "/a/\\377")"')).toBe('bytes');
    await sh('ln -s "$(printf "\\377")" /a/to');
    expect(await files.text('/a/to')).toBe('bytes');
    expect((await files.copy('/a/\\xff', '/a/\\xfe/\\x5cxff')).status).toBe(200);
    expect(await sh('ls "$(printf "/a/\\376")"')).toBe('\\xff\n');
    const cwd = { cmd: 'ls', cwd: '/a/\\xfe' };
    expect((await inside.client.post(`/v1/sandboxes/${id}/exec`, cwd)).body.stdout).toBe('\\xff\n');
    expect((await files.remove('/a/\\xff')).status).toBe(200);
    expect([await files.exists('/a/d/three.txt'), await files.exists('/a/c/two.txt')]).toEqual([true, false]);
    expect(await files.exists('/a/link')).toBe(false);
    expect(codeOf(await files.remove('/a/d'))).toEqual([409, 'sandbox_directory_not_empty']);
    expect(codeOf(await files.remove('/a/d/three.txt', RECURSIVE))).toEqual([400, 'invalid_sandbox_path']);
    expect((await files.remove('/a', RECURSIVE)).status).toBe(200);
    expect(await sh('ls /a')).toContain('No such file');
  });

  test('say that an upload ended with its sandbox, and leave the target as it was', async () => {
    const box = await inside.start('half');
    const own = filesIn(inside.client, box);
    await own.put('/half', 'before');
    const upload = httpRequest(`${inside.client.url}/v1/sandboxes/${box}/files/content`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${inside.client.key}`, 'x-msb-file-path': encode('/half') },
    });
    const answered = new Promise<IncomingMessage>((resolve, reject) => {
      upload.on('error', reject).on('response', resolve);
    });
    upload.write('x'.repeat(100_000));
    await until(
      () => execIn(box, 'sh', '-c', 'ls -a /'),
      (text) => text.includes('.sandkeep-'),
    );
    await (await containerOf(box))!.kill();
    const response = await answered;
    const { error } = (await json(response)) as { error: unknown };
    upload.destroy();
    expect([response.statusCode, error]).toMatchObject([
      409,
      { code: 'ended_with_sandbox', details: { reason: 'engine' } },
    ]);
    await until(
      () => inside.client.get(`/v1/sandboxes/${box}`),
      ({ body }) => body.status !== 'running',
    );
    await inside.client.post(`/v1/sandboxes/${box}/start`, {}, { wait_for: 'running' });
    expect(await own.text('/half')).toBe('before');
  });

  test('refuse what does not fit, each with its code', async () => {
    await sh('mkdir -p /r/d; echo x > /r/f; busybox mkfifo /r/p; ln -s /r/loop /r/loop');
    for (const [answer, status, code] of [
      [await files.stat('/r/none'), 404, 'sandbox_file_not_found'],
      [await files.list('/r/none'), 404, 'sandbox_file_not_found'],
      [await files.list('/r/f'), 400, 'invalid_sandbox_path'],
      [await files.put('/r/d', 'x'), 409, 'sandbox_file_exists'],
      [await files.put('/r/p', 'x'), 409, 'sandbox_file_exists'],
      [await files.put('/r/f/below', 'x'), 409, 'sandbox_file_exists'],
      [await files.put('/', 'x'), 400, 'invalid_sandbox_path'],
      [await files.put('/r/../x', 'x'), 400, 'invalid_sandbox_path'],
      [await files.mkdir('/r/f'), 409, 'sandbox_file_exists'],
      [await files.mkdir('x'.repeat(5_000)), 400, 'invalid_sandbox_path'],
      [await files.copy('/r/d', '/r/e'), 400, 'invalid_sandbox_path'],
      [await files.copy('/r/p', '/r/e'), 400, 'invalid_sandbox_path'],
      [await files.rename('/r/none', '/new/x'), 404, 'sandbox_file_not_found'],
      [await files.rename('/', '/x'), 400, 'invalid_sandbox_path'],
      [await files.remove('/', RECURSIVE), 400, 'invalid_sandbox_path'],
      [await files.put('/proc/x', 'x'), 404, 'sandbox_file_not_found'],
      [await files.stat(Buffer.from([0xff])), 400, 'invalid_sandbox_path'],
    ] as const) {
      expect(codeOf(answer), JSON.stringify(answer.body)).toEqual([status, code]);
    }
    for (const path of ['/r/p', '/r/d', '/r/loop', '/dev/null']) {
      expect([path, (await files.get(path)).status]).toEqual([path, 400]);
    }
    expect(await sh('ls -A /r; ls /new')).toMatch(/^d\nf\nloop\np\nls: \/new/);
  });

  test('keep owner and permissions when they are replaced, and a link keeps leading to its target', async () => {
    await sh('mkdir /k; echo old > /k/f; busybox chown 12:34 /k/f; busybox chmod 4750 /k/f; ln -s f /k/l');
    expect((await files.put('/k/l', 'new')).status).toBe(200);
    expect(await sh('cat /k/f; busybox stat -c " %u:%g %a" /k/f; busybox readlink /k/l; ls -A /k')).toBe(
      'new 12:34 750\nf\nf\nl\n',
    );
  });

  test('are read to their end below /proc, although their size is not known', async () => {
    expect(await files.text('/proc/self/status')).toContain('CapEff');
  });

  test('are read to their end below /sys, although they are shorter than their size', async () => {
    const path = '/sys/class/net/lo/mtu';
    expect((await files.stat(path)).body.metadata.size).toBeGreaterThan(100);
    expect(await files.text(path)).toBe(await sh(`cat ${path}`));
  });

  test('never lead out of the container through a link that the guest made', async () => {
    await sh('ln -s /proc/1/root /esc; ln -s /proc/self/root /own; ln -s ../../../../../../etc /up');
    await files.put('/up/planted', 'inside');
    expect(await sh('cat /etc/planted')).toBe('inside');
    expect((await files.put('/own/planted', 'inside')).status).toBe(200);
    expect(await sh('cat /planted')).toBe('inside');
    // Process 1 cannot be inspected.
    expect((await files.put('/esc/planted', 'inside')).status).toBe(403);
  });

  test('pass 100 MB in both directions with the same hash and little memory', async () => {
    const SIZE = 100 * 1024 * 1024;
    const piece = randomBytes(1024 * 1024);
    const [sentHash, readHash] = [createHash('sha256'), createHash('sha256')];
    let sent = 0;
    let most = 0;
    const before = process.memoryUsage().rss;
    const watch = setInterval(() => (most = Math.max(most, process.memoryUsage().rss - before)), 20);
    const body = new ReadableStream(
      {
        pull(controller) {
          if (sent === SIZE) return controller.close();
          sent += piece.length;
          sentHash.update(piece);
          controller.enqueue(piece);
        },
      },
      { highWaterMark: 0 },
    );
    expect((await files.put('/large', body)).status).toBe(200);
    const answer = await files.get('/large');
    expect(answer.headers.get('content-length')).toBe(String(SIZE));
    for await (const chunk of answer.body!) readHash.update(chunk as Uint8Array);
    clearInterval(watch);
    expect(readHash.digest('hex')).toBe(sentHash.digest('hex'));
    expect(most).toBeLessThan(150 * 1024 * 1024);
    await files.remove('/large');
    // It works for 5 s. A machine with a load of 20 gave it a tenth of a processor.
  });

  test('are as before when an upload breaks off, and nothing is left beside them', async () => {
    await files.put('/u/f', 'old');
    const upload = httpRequest(`${inside.client.url}${files.base}/content`, {
      method: 'PUT',
      headers: { authorization: `Bearer ${inside.client.key}`, 'x-msb-file-path': encode('/u/f') },
    });
    upload.on('error', () => undefined);
    upload.write('a part');
    await until(
      () => sh('ls -A /u'),
      (names) => names.includes('.sandkeep-'),
      30_000,
    );
    upload.destroy();
    await until(
      () => sh('ls -A /u'),
      (names) => names === 'f\n',
      30_000,
    );
    expect(await files.text('/u/f')).toBe('old');
  });

  test('are changed once for each idempotency key', async () => {
    const key = { 'idempotency-key': 'upload' };
    expect((await files.put('/i/f', 'one', key)).status).toBe(200);
    await files.put('/i/f', 'two');
    expect(await files.put('/i/f', 'one', key)).toMatchObject({ status: 200, replayed: 'true' });
    expect(await files.text('/i/f')).toBe('two');
    expect(codeOf(await files.put('/i/f', 'three', key))).toEqual([409, 'idempotency_conflict']);
    const removal = { 'idempotency-key': 'removal' };
    const first = await files.remove('/i/f', removal);
    expect((await files.remove('/i/f', removal)).body).toEqual(first.body);
  });

  test('are one session in the audit trail for each request, with bytes and writes', async () => {
    const box = await inside.start('recorded');
    const own = filesIn(inside.client, box);
    await own.put('/tmp/f', '12345');
    const written = await inside.endOf(box, 'closed');
    expect(written).toMatchObject({
      kind: 'files',
      bytes_in: 5,
      bytes_out: 0,
      file_writes: 1,
      program: null,
    });
    await own.text('/tmp/f');
    await until(
      () => inside.endOf(box, 'closed'),
      ({ bytes_in, bytes_out, file_writes }) => bytes_in === 0 && bytes_out === 5 && file_writes === 0,
      30_000,
    );
    expect(JSON.stringify(written)).not.toContain('/tmp');
  });

  test('are not found by other organizations, and need the scope', async () => {
    const other = filesIn(await inside.service.newOrg(), id);
    expect(codeOf(await other.list('/'))).toEqual([404, 'sandbox_not_found']);
    expect(codeOf(await other.put('/x', 'x'))).toEqual([404, 'sandbox_not_found']);
    const { body } = await inside.client.post('/v1/keys', { name: 'w', scopes: ['sandboxes:write'] });
    const unscoped = filesIn({ ...inside.client, key: body.key }, id);
    expect(codeOf(await unscoped.put('/x', 'x'))).toEqual([403, 'insufficient_scope']);
  });
});
