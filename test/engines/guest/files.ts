import { Buffer } from 'node:buffer';
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Guest, GuestFiles } from '../../../src/guest/guest.js';
import { errorOf, listAll, READ, readAll, sh, TestCommand, WRITE, writeAll } from '../../support/guest.js';
import type { GuestTarget } from './target.js';

const sha256 = (data: Buffer) => createHash('sha256').update(data).digest('hex');

export function fileTests(open: () => Promise<GuestTarget>): void {
  describe('files', () => {
    let target: GuestTarget;
    let guest: Guest;
    let files: GuestFiles;
    let directory: string;
    beforeAll(async () => {
      target = await open();
      ({ guest, directory } = target);
      files = guest.files();
    });
    afterAll(async () => {
      files?.end();
      await target?.close();
    });

    test('are written and read with the same content', async () => {
      const data = randomBytes(5_000_000);
      await writeAll(files, `${directory}/big`, data);
      expect(sha256(await readAll(files, `${directory}/big`))).toBe(sha256(data));
      const handle = await files.open(`${directory}/big`, READ);
      expect((await files.read(handle, 4_999_990n, 1_000)).length).toBe(10);
      expect((await files.read(handle, 1n << 62n, 1_000)).length).toBe(0);
      expect(await errorOf(files.write(handle, 0n, Buffer.from('x')))).toBe('EBADF');
      await files.close(handle);
      expect(await errorOf(files.read(handle, 0n, 1))).toBe('EBADF');
      expect(await errorOf(files.close(handle))).toBe('EBADF');
    });

    test('are opened as asked', async () => {
      const path = `${directory}/opened`;
      expect(await errorOf(files.open(path, READ))).toBe('ENOENT');
      await files.close(await files.open(path, { ...WRITE, createNew: true, mode: 0o600 }));
      expect(await errorOf(files.open(path, { ...WRITE, createNew: true }))).toBe('EEXIST');
      expect((await files.stat(path, { follow: true })).mode).toBe(0o100600);
      await writeAll(files, path, 'one');
      const appending = await files.open(path, { ...WRITE, truncate: false, append: true });
      await files.write(appending, 0n, Buffer.from(' two'));
      await files.close(appending);
      expect((await readAll(files, path)).toString()).toBe('one two');
      await writeAll(files, path, 'x');
      expect((await readAll(files, path)).toString()).toBe('x');
      expect(await errorOf(files.open(directory, WRITE))).toBe('EISDIR');
    });

    test('have attributes that can be changed', async () => {
      const path = `${directory}/attributes`;
      await writeAll(files, path, 'four');
      await files.setStat(path, { mode: 0o640, size: 2n, mtime: 1_000n, atime: 2_000n }, { follow: true });
      const { mode, size, mtime, atime } = await files.stat(path, { follow: true });
      expect({ mode, size, mtime, atime }).toEqual({
        mode: 0o100640,
        size: 2n,
        mtime: 1_000n,
        atime: 2_000n,
      });
      const handle = await files.open(path, { ...WRITE, truncate: false });
      await files.setStatOpen(handle, { size: 9n, mode: 0o600 });
      expect(await files.statOpen(handle)).toMatchObject({ size: 9n, mode: 0o100600 });
      await files.close(handle);
      expect(await errorOf(files.setStat(`${directory}/none`, { mode: 0 }, { follow: true }))).toBe('ENOENT');
    });

    test('are copied, renamed and removed', async () => {
      const [a, b, c] = ['a', 'b', 'c'].map((name) => `${directory}/${name}`) as [string, string, string];
      const data = randomBytes(700_000);
      await writeAll(files, a, data);
      await files.setStat(a, { mode: 0o751 }, { follow: true });
      await files.copy(a, b);
      expect((await files.stat(b, { follow: true })).mode & 0o7777).toBe(0o751);
      expect(sha256(await readAll(files, b))).toBe(sha256(data));
      expect(await errorOf(files.copy(a, a))).toBe('EINVAL');
      expect((await readAll(files, a)).length).toBe(700_000);
      await files.rename(b, c);
      expect(await errorOf(files.stat(b, { follow: true }))).toBe('ENOENT');
      await files.remove(c);
      expect(await errorOf(files.remove(c))).toBe('ENOENT');
      expect(await errorOf(files.copy(directory, c))).toBe('EISDIR');
      expect(await errorOf(files.copy(c, b))).toBe('ENOENT');
      expect(await errorOf(files.rename(c, b))).toBe('ENOENT');
    });

    test('are copied without the right to change the user', async () => {
      await writeAll(files, `${directory}/setuid`, 'x');
      await files.setStat(`${directory}/setuid`, { mode: 0o4755 }, { follow: true });
      await files.copy(`${directory}/setuid`, `${directory}/copied`);
      expect((await files.stat(`${directory}/copied`, { follow: true })).mode).toBe(0o100755);
    });

    test('have one path while others replace them', async () => {
      const [path, script] = [`${directory}/busy`, 'while :; do echo x > "$1.new"; mv "$1.new" "$1"; done'];
      const writer = new TestCommand(guest, ['sh', '-c', script, 'sh', path]);
      for (let i = 0; i < 500; i++) expect(await files.realPath(path)).toBe(path);
      writer.command.close();
      await writer.over;
    });

    test('may be links', async () => {
      const link = `${directory}/link`;
      await files.symlink('pointed', link);
      expect(await files.readLink(link)).toBe('pointed');
      expect(await errorOf(files.stat(link, { follow: true }))).toBe('ENOENT');
      expect((await files.stat(link, { follow: false })).mode & 0o170000).toBe(0o120000);
      await writeAll(files, link, 'through');
      expect((await readAll(files, `${directory}/pointed`)).toString()).toBe('through');
      expect(await files.realPath(link)).toBe(`${directory}/pointed`);
      expect(await files.realPath(`${directory}/./../${directory.split('/').at(-1)}/new`)).toBe(
        `${directory}/new`,
      );
      expect(await errorOf(files.realPath(`${directory}/no/way`))).toBe('ENOENT');
      // The kernel has a text for a pipe too, which is no path.
      expect(await errorOf(files.realPath('/proc/self/fd/0'))).toBe('EINVAL');
      expect(await errorOf(files.readLink(directory))).toBe('EINVAL');
      expect(await errorOf(files.symlink('x', link))).toBe('EEXIST');
      await files.symlink('loop', `${directory}/loop`);
      expect(await errorOf(files.stat(`${directory}/loop`, { follow: true }))).toBe('ELOOP');
      await files.remove(link);
      expect((await files.stat(`${directory}/pointed`, { follow: true })).size).toBe(7n);
    });

    test('have names of any characters that are not too long', async () => {
      const name = `${directory}/ünï cödé\n✓ "$x"`;
      await writeAll(files, name, 'x');
      expect(await listAll(files, directory)).toContain(name.split('/').at(-1));
      expect(await errorOf(files.stat(`${directory}/${'n'.repeat(256)}`, { follow: true }))).toBe(
        'ENAMETOOLONG',
      );
      expect(await errorOf(files.stat('/x'.repeat(3_000), { follow: true }))).toBe('ENAMETOOLONG');
      expect(await errorOf(files.stat('x'.repeat(400_000), { follow: true }))).toBe('ENAMETOOLONG');
      expect(await errorOf(files.stat('a\0b', { follow: true }))).toBe('EINVAL');
      expect(await errorOf(files.stat('', { follow: true }))).toBe('ENOENT');
      expect(await errorOf(files.mkdir('', null))).toBe('EINVAL');
    });

    test('directories are made with their parents', async () => {
      await files.mkdir(`${directory}/one/two//three/`, 0o700);
      await files.mkdir(`${directory}/one/two/three`, null);
      expect((await files.stat(`${directory}/one/two/three`, { follow: true })).mode).toBe(0o040700);
      await writeAll(files, `${directory}/one/file`, 'x');
      expect(await errorOf(files.mkdir(`${directory}/one/file`, null))).toBe('ENOTDIR');
      expect(await errorOf(files.mkdir(`${directory}/one/file/below`, null))).toBe('ENOTDIR');
      expect(await errorOf(files.removeDir(`${directory}/one`, { recursive: false }))).toBe('ENOTEMPTY');
      expect(await errorOf(files.removeDir(`${directory}/one/file`, { recursive: true }))).toBe('ENOTDIR');
      await files.symlink('/', `${directory}/one/root`);
      await files.removeDir(`${directory}/one`, { recursive: true });
      expect(await errorOf(files.stat(`${directory}/one`, { follow: true }))).toBe('ENOENT');
      expect(await errorOf(files.removeDir(`${directory}/one`, { recursive: true }))).toBe('ENOENT');
      expect((await files.stat('/', { follow: true })).mode & 0o170000).toBe(0o040000);
    });

    test('deep and long directories are listed and removed', async () => {
      const deep = `${directory}/deep${'/d'.repeat(400)}`;
      await files.mkdir(deep, null);
      const long = `${directory}/deep/long`;
      await files.mkdir(long, null);
      await sh(guest, `cd ${long} && seq 1 5000 | sed 's/^/a-rather-long-name-of-a-file-/' | xargs touch`);
      const names = await listAll(files, long);
      expect(new Set(names).size).toBe(5_000);
      expect(names).toHaveLength(5_000);
      expect(await errorOf(files.openDir(`${long}/${names[0]}`))).toBe('ENOTDIR');
      await files.removeDir(`${directory}/deep`, { recursive: true });
      expect(await errorOf(files.stat(`${directory}/deep`, { follow: true }))).toBe('ENOENT');
    });

    test('too deep directories are refused without harm', async () => {
      const script = 'i=0; while [ $i -lt 700 ]; do mkdir d && cd -P d || exit 1; i=$((i+1)); done';
      await files.mkdir(`${directory}/abyss`, null);
      await sh(guest, script, { cwd: `${directory}/abyss` });
      expect(await errorOf(files.removeDir(`${directory}/abyss`, { recursive: true }))).toBe('ENAMETOOLONG');
      expect(await sh(guest, `rm -rf ${directory}/abyss && echo gone`)).toBe('gone');
    });

    test('pipes and devices hold nothing up', async () => {
      await sh(guest, `mkfifo ${directory}/pipe`);
      const pipe = await files.open(`${directory}/pipe`, READ);
      expect((await files.read(pipe, 0n, 10)).length).toBe(0);
      expect(await errorOf(files.open(`${directory}/pipe`, { ...WRITE, create: false }))).not.toBe('ENXIO');
      const holder = new TestCommand(guest, ['sh', '-c', `exec 3<>${directory}/pipe; echo held; sleep 1000`]);
      await holder.says('held');
      expect(await errorOf(files.read(pipe, 0n, 10))).toBe('EAGAIN');
      expect(await errorOf(files.setStat(`${directory}/pipe`, { size: 0n }, { follow: true }))).toBe(
        'EINVAL',
      );
      expect(await errorOf(files.copy(`${directory}/pipe`, `${directory}/copy-of-pipe`))).toBe('EINVAL');
      await writeAll(files, `${directory}/plain-file`, 'x');
      expect(await errorOf(files.copy(`${directory}/plain-file`, `${directory}/pipe`))).toBe('EINVAL');
      holder.command.close();
      await holder.over;
      await files.close(pipe);
      const zero = await files.open('/dev/zero', READ);
      expect((await files.read(zero, 0n, 1_000)).length).toBe(1_000);
      await files.close(zero);
      expect(await errorOf(files.copy('/dev/zero', `${directory}/zeros`))).toBe('EINVAL');
      expect(await errorOf(files.open('/dev/tty', READ))).toMatch(/ENXIO|ENOENT/);
      await files.close(await files.open('/dev/ptmx', READ));
    });

    test('handles belong to the object that opened them', async () => {
      const other = guest.files();
      await writeAll(files, `${directory}/mine`, 'mine');
      const handle = await files.open(`${directory}/mine`, READ);
      expect(await errorOf(other.read(handle, 0n, 4))).toBe('EBADF');
      expect(await errorOf(other.close(handle))).toBe('EBADF');
      other.end();
      expect((await files.read(handle, 0n, 4)).toString()).toBe('mine');
      await files.close(handle);
    });

    test('work that takes long ends with its object', async () => {
      const other = guest.files();
      await sh(guest, `head -c 100000000 /dev/zero > ${directory}/huge`);
      const copies = Array.from({ length: 8 }, (_, i) =>
        errorOf(other.copy(`${directory}/huge`, `${directory}/huge-${i}`)),
      );
      other.end();
      // On a busy machine the first of them may be complete before the end arrives.
      const outcomes = await Promise.all(copies);
      expect(outcomes).toContain('ECANCELED');
      expect(outcomes.filter((outcome) => outcome !== 'ECANCELED' && outcome !== 'no error')).toEqual([]);
      await sh(guest, `rm ${directory}/huge*`);
    });
  });
}
