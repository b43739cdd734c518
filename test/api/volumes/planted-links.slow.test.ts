import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import {
  appendFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { startTestService, type TestService } from '../../support/service.js';
import { codeOf, makeVolume } from '../../support/volume-files.js';

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

const newVolume = (more = {}) => makeVolume(service, client, more);

describe.runIf(process.platform === 'linux')('files planted by a guest', () => {
  test('as symlinks are never followed, and can be removed, renamed and replaced', async () => {
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

    const links = ['dangling', 'inside', 'loop', 'relative', 'root', 'to-dir', 'to-file'];
    const { body } = await volume.list('/');
    expect(body.entries.map(({ path, kind }: any) => [path, kind])).toEqual(
      [...links.map((name) => [`/${name}`, 'symlink']), ['/real', 'directory']].toSorted(([one], [other]) =>
        one! < other! ? -1 : 1,
      ),
    );
    for (const [path, target] of [
      ['to-file', join(outside, 'secret')],
      ['to-dir', outside],
      ['inside', 'real'],
      ['loop', 'loop'],
      ['dangling', 'nowhere'],
    ] as const) {
      const size = Buffer.byteLength(target);
      expect((await volume.stat(path)).body.metadata).toMatchObject({ kind: 'symlink', target, size });
      expect((await volume.exists(path)).body).toEqual({ exists: true });
      expect(await volume.text(path)).toContain(
        `is a symbolic link to \\"${target}\\", which is not followed`,
      );
    }
    for (const path of [...links, 'to-dir/secret', 'relative/passwd', 'inside/file', 'root/etc/passwd']) {
      expect([path, (await volume.get(path)).status]).toEqual([path, 404]);
      expect((await volume.copy(path, 'stolen')).status).toBe(404);
      expect((await volume.list(path)).status).toBe(404);
      if (links.includes(path)) continue;
      expect([path, ...codeOf(await volume.stat(path))]).toEqual([path, 404, 'volume_file_not_found']);
      expect((await volume.exists(path)).body).toEqual({ exists: false });
    }
    // Official SDKs drop a whole list with a kind that they do not know.
    const headers = { authorization: `Bearer ${client.key}`, 'user-agent': 'microsandbox-sdk/0.6.18' };
    const asSdk = async (url: string): Promise<any> =>
      (await fetch(`${client.url}${volume.base}${url}`, { headers })).json();
    expect((await asSdk('?path=/')).entries[0]).toMatchObject({ path: '/dangling', kind: 'file' });
    expect((await asSdk('/stat?path=dangling')).metadata).toMatchObject({ kind: 'file', size: 7 });
    for (const path of ['to-dir/new', 'to-dir/secret', 'inside/new', 'to-dir/a/b']) {
      expect([path, (await volume.put(path, 'PWNED')).status]).toEqual([path, 404]);
      expect((await volume.mkdir(path)).status).toBe(404);
      expect((await volume.remove(path, true)).status).toBe(404);
      expect((await volume.rename(path, 'stolen')).status).toBe(404);
      expect((await volume.rename('real', path)).status).toBe(404);
    }
    expect(existsSync(join(volume.data, 'stolen'))).toBe(false);
    expect(readdirSync(outside)).toEqual(['secret']);

    // The link itself belongs to the volume.
    expect((await volume.put('to-file', 'mine now')).status).toBe(200);
    expect(await volume.text('to-file')).toBe('mine now');
    expect((await volume.rename('to-dir', 'real/moved-link')).status).toBe(200);
    expect((await volume.remove('loop')).status).toBe(200);
    expect((await volume.remove('real', true)).status).toBe(200);
    expect(readFileSync(join(outside, 'secret'), 'utf8')).toBe('SECRET');
  });

  test('as pipes, sockets and devices neither block a request nor are opened', async () => {
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

  test('never lead outside while a directory becomes a symlink and back during requests', async () => {
    const volume = await newVolume();
    mkdirSync(join(outside, 'sub'), { recursive: true });
    writeFileSync(join(outside, 'sub/file'), 'SECRET');
    const [door, kept] = [join(volume.data, 'door'), join(volume.data, 'kept')];
    mkdirSync(join(door, 'sub'), { recursive: true });
    writeFileSync(join(door, 'sub/file'), 'inside');
    const swapping = new AbortController();
    const swaps = (async () => {
      let count = 0;
      while (!swapping.signal.aborted) {
        // A request may have created the directory while it was absent.
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
    swapping.abort();
    expect(await swaps).toBeGreaterThan(20);
    expect([...seen].filter((what) => what.startsWith('read '))).not.toContain('read SECRET');
    expect([...seen].filter((what) => / 5\d\d$/.test(what))).toEqual([]);
    expect(readdirSync(outside).toSorted()).toEqual(['secret', 'sub']);
    expect(readdirSync(join(outside, 'sub'))).toEqual(['file']);
    // Requests found both the directory and the link, so the race took place.
    expect(seen).toContain('read inside');
    expect(seen).toContain('read ');
  });

  test('never redirect the removal of a tree while links are swapped in', async () => {
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
      const done = new AbortController();
      void removing.finally(() => done.abort());
      for (let index = 0; !done.signal.aborted; index = (index + 1) % 20) {
        try {
          renameSync(join(tree, `d${index}`), join(volume.data, `away-${round}-${index}`));
          symlinkSync(victim, join(tree, `d${index}`));
        } catch {
          // Already removed.
        }
        await new Promise(setImmediate);
      }
      expect((await removing).status).toBe(200);
    }
    expect(readdirSync(victim)).toHaveLength(50);
    rmSync(victim, { recursive: true });
  });

  test('do not stop a removal when a directory turns into a link and back', async () => {
    const volume = await newVolume();
    const victim = mkdtempSync(join(outside, 'victim-'));
    writeFileSync(join(victim, 'kept'), '');
    const turn = `const fs = require('fs');
      const attempt = (what, ...names) => { try { fs[what + 'Sync'](...names) } catch {} };
      for (const end = Date.now() + 500; Date.now() < end;) {
        attempt('mkdir', 'tree/d');
        attempt('rename', 'tree/d', 'away');
        attempt('symlink', process.argv[1], 'tree/d');
        attempt('rmdir', 'away');
        attempt('unlink', 'tree/d');
      }`;
    for (let round = 0; round < 4; round += 1) {
      mkdirSync(join(volume.data, 'tree'));
      const turning = spawn(process.execPath, ['-e', turn, victim], { cwd: volume.data });
      const ended = once(turning, 'close');
      while (turning.exitCode === null) {
        const { status, body } = await volume.remove('tree', true);
        expect(status, JSON.stringify(body)).toBe(200);
        mkdirSync(join(volume.data, 'tree'), { recursive: true });
      }
      await ended;
      expect((await volume.remove('tree', true)).status).toBe(200);
    }
    expect(readdirSync(victim)).toEqual(['kept']);
    rmSync(victim, { recursive: true });
  });

  test('are removed at any depth', async () => {
    const volume = await newVolume();
    const dig = `const fs = require('fs');
      for (let level = 0; level < 1500; level += 1) {
        fs.mkdirSync('deep-directory'); process.chdir('deep-directory'); fs.writeFileSync('f', ''); fs.symlinkSync('/', 'l');
      }`;
    execFileSync(process.execPath, ['-e', dig], { cwd: volume.data });
    expect((await volume.remove('deep-directory', true)).status).toBe(200);
    expect(readdirSync(volume.data)).toEqual([]);
  });

  test('have correct times, even far in the past', async () => {
    const volume = await newVolume();
    await volume.put('old', 'x');
    execFileSync('touch', ['-d', '@-1000000000', join(volume.data, 'old')]);
    expect((await volume.stat('old')).body.metadata.modified_at).toBe('1938-04-24T22:13:20.000Z');
  });

  test('that grow or shrink during a read are answered with the promised length, or cut off', async () => {
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

/** Retries an operation after removing the entry in its way. */
function attempt(what: () => void, inTheWay: string): void {
  for (;;) {
    try {
      return what();
    } catch {
      rmSync(inTheWay, { recursive: true, force: true });
    }
  }
}
