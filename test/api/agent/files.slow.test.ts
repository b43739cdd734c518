import { createHash } from 'node:crypto';
import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { sleep } from '../../../src/lib/sleep.js';
import { AgentClient } from '../../support/agent-client.js';
import { SENT } from '../../support/captured-frames.js';
import { agentFiles, describeDocker, execIn } from '../../support/docker.js';
import { startInside, type Inside } from '../../support/inside.js';
import { until } from '../../support/polling.js';

const NULLS = { mode: null, uid: null, gid: null, size: null, atime: null, mtime: null };
const READ = {
  read: true,
  write: false,
  append: false,
  create: false,
  truncate: false,
  create_new: false,
  mode: null,
};
const WRITE = { ...READ, read: false, write: true, create: true, truncate: true };

const byText = (a: string, b: string) => (a < b ? -1 : 1);

describeDocker('files on the agent channel', () => {
  let inside: Inside;
  let id: string;
  let agent: AgentClient;
  beforeAll(async () => {
    inside = await startInside();
    id = await inside.start('box');
  });
  afterAll(() => inside.close());
  beforeEach(async () => {
    agent?.close();
    agent = await AgentClient.open(inside.client, id);
    await agent.outcome(agent.sh('busybox rm -rf /tmp/t; busybox mkdir -m 755 /tmp/t'));
  });

  const DONE = { ok: true, error: null, data: null };
  const failed = (error: string) => ({ ok: false, error, data: null });
  const MISSING = failed('No such file or directory (os error 2)');
  const handleOf = async (op: string, fields: object): Promise<number> =>
    (await agent.fs(op, fields)).data.Handle;
  const stat = async (path: string) => (await agent.fs('Stat', { path, follow_symlink: false })).data.Stat;
  const sh = async (script: string) => (await agent.outcome(agent.sh(script))).stdout;

  async function write(
    handle: number,
    parts: readonly (string | Buffer)[],
    { offset = 0, len = null as number | null } = {},
  ) {
    const session = agent.start('core.fs.request', { op: { Write: { handle, offset, len } } });
    for (const part of [...parts, '']) agent.send(session, 'core.fs.data', { data: Buffer.from(part) });
    return (await agent.next(session, 'core.fs.response')).payload;
  }

  async function read(
    handle: number,
    offset: number | bigint = 0,
    len: number | null = null,
  ): Promise<string> {
    const session = agent.start('core.fs.request', { op: { Read: { handle, offset, len } } });
    const messages = await agent.all(session);
    expect(messages.pop()!.payload).toEqual(DONE);
    return Buffer.concat(messages.map(({ payload }) => payload.data)).toString();
  }

  test('are served for every frame of the clients', async () => {
    await sh(
      'cd /tmp; echo hello >a.txt; echo x >x; echo s >s.txt; busybox mkdir -p sd d cpd; busybox ln -sf x ln',
    );
    for (const { hex, id: session, type } of SENT.filter(({ type }) => type === 'core.fs.request')) {
      agent.write(Buffer.from(hex, 'hex'));
      // A write waits for its data.
      if (hex.includes(Buffer.from('Write').toString('hex')))
        agent.send(session, 'core.fs.data', { data: Buffer.alloc(0) });
      const { flags, payload } = await agent.next(session, 'core.fs.response');
      expect({ type, flags, keys: Object.keys(payload) }).toEqual({
        type,
        flags: 1,
        keys: ['ok', 'error', 'data'],
      });
    }
  });

  test('are opened, written at an offset, read in parts, described, changed and closed by handle', async () => {
    const handle = await handleOf('OpenFile', { path: '/tmp/t/x', options: { ...WRITE, read: true } });
    expect(await write(handle, ['hello ', 'world'])).toEqual(DONE);
    expect(await write(handle, ['W'], { offset: 6, len: 1 })).toEqual(DONE);
    expect(await write(handle, ['ab'], { len: 3 })).toEqual(
      failed('the client sent 1 bytes fewer than "len"'),
    );
    expect(await read(handle)).toBe('abllo World');
    expect(await read(handle, 6, 3)).toBe('Wor');
    expect(await read(handle, 11)).toBe('');
    expect(await read(handle, 0, 0)).toBe('');
    const fstat = async () => (await agent.fs('FStat', { handle })).data.Stat;
    expect(await fstat()).toMatchObject({ kind: 'file', size: 11, mode: 0o100644, uid: 0, gid: 0 });
    const attrs = { ...NULLS, mode: 0o600, size: 4, mtime: 1_000_000, atime: 2_000_000, uid: 12, gid: 13 };
    expect(await agent.fs('FSetStat', { handle, attrs })).toEqual(DONE);
    expect(await fstat()).toMatchObject({
      size: 4,
      mode: 0o100600,
      uid: 12,
      gid: 13,
      mtime: 1_000_000,
      atime: 2_000_000,
    });
    expect(await agent.fs('CloseHandle', { handle })).toEqual(DONE);
    for (const op of ['FStat', 'CloseHandle', 'ReadDir'])
      expect((await agent.fs(op, { handle })).ok).toBe(false);
    expect(await write(handle, ['x'])).toEqual(failed(`there is no open file ${handle}`));
    expect(await sh('busybox cat /tmp/t/x; busybox stat -c %a /tmp/t/x')).toBe('abll600\n');
  });

  test('are opened with each option', async () => {
    const open = (options: object) =>
      agent.fs('OpenFile', { path: '/tmp/t/x', options: { ...READ, ...options } });
    expect(await open({})).toEqual(MISSING);
    const made = (await open({ write: true, create_new: true, mode: 0o640 })).data.Handle;
    await write(made, ['one']);
    expect(await open({ write: true, create_new: true })).toEqual(failed('File exists (os error 17)'));
    await write((await open({ write: true, append: true })).data.Handle, ['two']);
    expect(await read((await open({})).data.Handle)).toBe('onetwo');
    await open({ write: true, truncate: true });
    expect(await stat('/tmp/t/x')).toMatchObject({ size: 0, mode: 0o100640 });
  });

  test('are open for one connection: handles of another one, and of another organization, name nothing', async () => {
    const stranger = await inside.service.newOrg();
    const strange = await inside.start('strange', {}, stranger);
    const others = [await AgentClient.open(inside.client, id), await AgentClient.open(stranger, strange)];
    const handle = await handleOf('OpenFile', { path: '/tmp/t/own', options: WRITE });
    for (const other of others) {
      const foreign = failed(`there is no open file ${handle}`);
      expect(await other.fs('FStat', { handle })).toEqual(failed('Bad file descriptor (os error 9)'));
      expect(await other.fs('CloseHandle', { handle })).toEqual(foreign);
      const session = other.start('core.fs.request', { op: { Write: { handle, offset: 0, len: 1 } } });
      other.send(session, 'core.fs.data', { data: Buffer.from('x') });
      expect((await other.next(session, 'core.fs.response')).payload).toEqual(foreign);
      other.close();
    }
    expect(await write(handle, ['own'])).toEqual(DONE);
    expect(await sh('cat /tmp/t/own')).toBe('own');
  });

  test('in a directory are listed at once, or in batches through a handle', async () => {
    await sh(
      'cd /tmp/t; for n in $(busybox seq 300); do : >f$n; done; busybox ln -s nowhere link; busybox mkdir sub',
    );
    const names = [...Array.from({ length: 300 }, (_, n) => `f${n + 1}`), 'link', 'sub'].toSorted(byText);
    const { List } = (await agent.fs('List', { path: '/tmp/t' })).data;
    expect(List.map(({ path }: any) => path).toSorted(byText)).toEqual(names.map((name) => `/tmp/t/${name}`));
    expect(new Set(List.map(({ kind }: any) => kind))).toEqual(new Set(['file', 'symlink', 'dir']));
    const handle = await handleOf('OpenDir', { path: '/tmp/t' });
    const batches: any[][] = [];
    for (;;) {
      const batch = (await agent.fs('ReadDir', { handle })).data.List;
      if (batch.length === 0) break;
      batches.push(batch);
    }
    expect(
      batches
        .flat()
        .map(({ path }) => path)
        .toSorted(byText),
    ).toEqual(names);
    expect(await agent.fs('CloseHandle', { handle })).toEqual(DONE);
    expect(await agent.fs('List', { path: '/tmp/t/f1' })).toEqual(failed('Not a directory (os error 20)'));
  });

  test('are made, linked, copied, moved, changed and removed by path', async () => {
    expect(await agent.fs('Mkdir', { path: '/tmp/t/a/b', mode: 0o700 })).toEqual(DONE);
    expect(await agent.fs('Mkdir', { path: '/tmp/t/a/b', mode: null })).toEqual(DONE);
    expect(await stat('/tmp/t/a/b')).toMatchObject({ kind: 'dir', mode: 0o40700 });
    await sh('echo hello >/tmp/t/x; busybox chmod 755 /tmp/t/x');
    expect(await agent.fs('Copy', { src: '/tmp/t/x', dst: '/tmp/t/y' })).toEqual(DONE);
    expect(await stat('/tmp/t/y')).toMatchObject({ kind: 'file', size: 6, mode: 0o100755, path: '/tmp/t/y' });
    expect(await agent.fs('Rename', { src: '/tmp/t/y', dst: '/tmp/t/z' })).toEqual(DONE);
    expect(await agent.fs('Symlink', { target: 'z', link_path: '/tmp/t/l' })).toEqual(DONE);
    expect((await agent.fs('ReadLink', { path: '/tmp/t/l' })).data).toEqual({ Path: 'z' });
    expect((await agent.fs('RealPath', { path: 'tmp/t/../t/l' })).data).toEqual({ Path: '/tmp/t/z' });
    expect(await stat('/tmp/t/l')).toMatchObject({ kind: 'symlink' });
    const set = (attrs: object, follow_symlink = true) =>
      agent.fs('SetStat', { path: '/tmp/t/l', follow_symlink, attrs: { ...NULLS, ...attrs } });
    expect(await set({ mode: 0o604, size: 2 })).toEqual(DONE);
    expect((await set({ mode: 0o604 }, false)).ok).toBe(false);
    expect(await stat('/tmp/t/z')).toMatchObject({ size: 2, mode: 0o100604 });
    expect(await agent.fs('Remove', { path: '/tmp/t/l' })).toEqual(DONE);
    expect(await agent.fs('Remove', { path: '/tmp/t/l' })).toEqual(MISSING);
    expect(await agent.fs('RemoveDir', { path: '/tmp/t/a', recursive: false })).toEqual(
      failed('Directory not empty (os error 39)'),
    );
    expect(await agent.fs('RemoveDir', { path: '/tmp/t/a', recursive: true })).toEqual(DONE);
    expect(await sh('cd /tmp/t; echo *')).toBe('x z\n');
  });

  test('belong to the connection that opened them, and close with it', async () => {
    const handle = await handleOf('OpenFile', { path: '/tmp/t/x', options: WRITE });
    const other = await AgentClient.open(inside.client, id);
    expect((await other.fs('FStat', { handle })).ok).toBe(false);
    expect((await other.fs('CloseHandle', { handle })).ok).toBe(false);
    expect((await agent.fs('FStat', { handle })).ok).toBe(true);
    other.close();
    const descriptors = async () => (await agentFiles(id)).filter((path) => path === '/tmp/t/x').length;
    expect(await descriptors()).toBe(1);
    agent.close();
    await expect.poll(descriptors).toBe(0);
  });

  test('are not touched when the client has left before its session is recorded', async () => {
    const box = await inside.start('left');
    const own = await AgentClient.open(inside.client, box);
    await execIn(box, 'sh', '-c', 'busybox mkdir -p /tmp/t; : >/tmp/t/kept');
    const { pool } = inside.service.ctx;
    const lock = await pool.connect();
    await lock.query('begin; lock table sandbox_sessions in share row exclusive mode');
    own.start('core.fs.request', { op: { OpenFile: { path: '/tmp/t/new', options: WRITE } } });
    own.start('core.fs.request', { op: { Remove: { path: '/tmp/t/kept' } } });
    const blocked = "wait_event_type = 'Lock' and query like 'insert into sandbox_sessions%'";
    await until(
      async () => (await pool.query(`select from pg_stat_activity where ${blocked}`)).rowCount,
      (waiting) => waiting === 1,
    );
    own.socket.close();
    await own.untilClosed();
    await lock.query('rollback');
    lock.release();
    expect(await inside.endOf(box, 'client_left')).toMatchObject({ kind: 'files' });
    expect(await execIn(box, 'ls', '/tmp/t')).toBe('kept\n');
  });

  test('count as writes when they are opened to be made or emptied', async () => {
    const box = await inside.start('counted');
    const own = await AgentClient.open(inside.client, box);
    for (const options of [WRITE, READ, { ...READ, write: true }, { ...READ, write: true, truncate: true }])
      expect((await own.fs('OpenFile', { path: '/tmp/f', options })).ok).toBe(true);
    own.close();
    expect(await inside.endOf(box, 'client_left')).toMatchObject({ kind: 'files', file_writes: 2 });
  });

  test('are at most 1024 at once on a connection', async () => {
    await sh(': >/tmp/t/x');
    const handles: number[] = [];
    for (let round = 0; round < 32; round++) {
      const opened = await Promise.all(
        Array.from({ length: 32 }, () => handleOf('OpenFile', { path: '/tmp/t/x', options: READ })),
      );
      handles.push(...opened);
    }
    expect(new Set(handles).size).toBe(1024);
    const full = failed('the connection has 1024 open files already');
    expect(await agent.fs('OpenFile', { path: '/tmp/t/x', options: READ })).toEqual(full);
    expect(await agent.fs('OpenDir', { path: '/tmp' })).toEqual(full);
    expect((await agent.fs('List', { path: '/tmp/t' })).ok).toBe(true);
    await agent.fs('CloseHandle', { handle: handles[500]! });
    expect((await agent.fs('OpenDir', { path: '/tmp' })).ok).toBe(true);
  });

  test('with wrong requests are refused, and the connection continues', async () => {
    const cases: [object, RegExp][] = [
      [{}, /"op" must be a map of one operation/],
      [{ Stat: { path: '/' }, List: { path: '/' } }, /"op" must be a map of one operation/],
      [{ Stat: 'x' }, /"op" must be a map of one operation/],
      [new Map([[7, {}]]), /"op" must be a map of one operation/],
      [{ Format: { path: '/' } }, /there is no file operation "Format"/],
      [{ constructor: {} }, /there is no file operation "constructor"/],
      [{ Stat: { path: 7 } }, /"path" must be a text/],
      [{ Stat: { path: 'a\0b' } }, /"path" has a NUL character/],
      [{ Read: { handle: -1, offset: 0, len: null } }, /"handle" must be an integer/],
      [{ Read: { handle: 1, offset: -1, len: null } }, /"offset" must be an integer/],
      [{ Read: { handle: 1, offset: 0.5, len: null } }, /"offset" must be an integer/],
      [{ Write: { handle: 4_000_000_000, offset: 0, len: null } }, /there is no open file 4000000000/],
      [{ OpenFile: { path: '/tmp', options: [] } }, /"options" must be a map/],
      [{ Mkdir: { path: '/tmp/t/a', mode: 2 ** 40 } }, /"mode" must be an integer/],
      [
        { SetStat: { path: '/tmp/t', follow_symlink: true, attrs: { mtime: -1 } } },
        /"mtime" must be an integer/,
      ],
      [{ List: { path: `/${'x/'.repeat(70_000)}` } }, /"path" is too long/],
    ];
    for (const [op, error] of cases) {
      expect(await agent.fs(op)).toMatchObject({
        ok: false,
        error: expect.stringMatching(error),
        data: null,
      });
    }
    const handle = await handleOf('OpenFile', { path: '/tmp/t/x', options: WRITE });
    expect(await write(handle, ['x'], { offset: 2 ** 63 })).toMatchObject({ ok: false });
    const session = agent.start('core.fs.request', { op: { Write: { handle, offset: 0, len: null } } });
    agent.send(session, 'core.fs.data', { data: 'text' });
    expect(await agent.next(session, 'core.error')).toMatchObject({
      flags: 1,
      payload: { kind: 'invalid_payload' },
    });
    expect(await agent.fs('FStat', { handle })).toMatchObject({ ok: true });
  });

  test('arrive as they are with 64 MiB, also when the client is slow to read', async () => {
    const block = Buffer.from(Array.from({ length: 4096 }, (_, n) => (n * 7919) % 251));
    const part = Buffer.concat(Array(512).fill(block));
    const handle = await handleOf('OpenFile', { path: '/tmp/t/big', options: { ...WRITE, read: true } });
    expect(await write(handle, Array(32).fill(part))).toEqual(DONE);
    const hash = await sh('busybox sha256sum /tmp/t/big');
    const session = agent.start('core.fs.request', { op: { Read: { handle, offset: 0, len: null } } });
    agent.socket.pause();
    await sleep(500);
    agent.socket.resume();
    const messages = await agent.all(session);
    expect(messages.pop()!.payload).toEqual(DONE);
    const sum = createHash('sha256');
    for (const { payload } of messages) sum.update(payload.data);
    expect(hash).toContain(sum.digest('hex'));
  });
});
