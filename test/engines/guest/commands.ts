import { Buffer } from 'node:buffer';
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sleep } from '../../../src/lib/sleep.js';
import type { Guest, GuestFiles } from '../../../src/guest/guest.js';
import { isAlive, run, sh, TestCommand, writeAll } from '../../support/guest.js';
import { until } from '../../support/polling.js';
import type { GuestTarget } from './target.js';

/** It ends when its child, which goes on to write, has written something. */
const SPEAKING_CHILD =
  'at=/tmp/speaking-$$; (echo first; : > $at; exec yes) & until [ -e $at ]; do sleep 0.1; done; rm $at; exit 6';
const sha256 = (data: Buffer) => createHash('sha256').update(data).digest('hex');

export function commandTests(open: () => Promise<GuestTarget>): void {
  describe('commands', () => {
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

    test('get their arguments as they are', async () => {
      const args = ['two words', '$HOME', '&&', '>/tmp/x', '', 'ünïcödé ✓ 漢', "'", '\\n', '*', '-n'];
      const { out, code } = await run(guest, ['sh', '-c', 'printf "%s\\n" "$@"', 'sh', ...args]);
      expect(out.split('\n').slice(0, -1)).toEqual(args);
      expect(code).toBe(0);
    });

    test('get the environment of the sandbox with their own merged over it', async () => {
      expect(await sh(guest, 'echo $COLOUR')).toBe('blue');
      const env = ['COLOUR=red', 'EMPTY=', 'EQUALS=a=b'];
      expect(await sh(guest, 'echo "$COLOUR/$EMPTY/$EQUALS"', { env })).toBe('red//a=b');
      const { out } = await run(guest, ['env'], { env });
      expect(out.match(/^COLOUR=/gm)).toHaveLength(1);
    });

    test('get the working directory', async () => {
      await files.mkdir(`${directory}/work`, null);
      expect(await sh(guest, 'pwd', { cwd: `${directory}/work` })).toBe(`${directory}/work`);
      const missing = await run(guest, ['true'], { cwd: `${directory}/missing` });
      expect(missing.failure).toMatchObject({ kind: 'bad_cwd', errnoName: 'ENOENT' });
      expect(missing.failure!.message).toContain(`${directory}/missing`);
      await writeAll(files, `${directory}/file`, 'x');
      const file = await run(guest, ['true'], { cwd: `${directory}/file` });
      expect(file.failure).toMatchObject({ kind: 'bad_cwd', errnoName: 'ENOTDIR' });
    });

    test.each([0, 1, 7, 255])('end with their exit code %d', async (code) => {
      const ended = await run(guest, ['sh', '-c', `exit ${code}`]);
      expect([ended.code, ended.calls]).toEqual([code, ['started', 'exited']]);
    });

    test('end by a signal with 128 and its number', async () => {
      expect((await run(guest, ['sh', '-c', 'kill -9 $$'])).code).toBe(137);
      expect((await run(guest, ['sh', '-c', 'kill -TERM $$'])).code).toBe(143);
    });

    test('write to two streams, all before their end', async () => {
      const ended = await run(guest, ['sh', '-c', 'echo out; echo err >&2; exit 3']);
      expect([ended.out, ended.err, ended.code]).toEqual(['out\n', 'err\n', 3]);
      expect(ended.calls.at(-1)).toBe('exited');
      const size = 3_000_000;
      const long = await run(guest, ['sh', '-c', `head -c ${size} /dev/zero; head -c ${size} /dev/zero >&2`]);
      expect([long.size, Buffer.concat(long.stderr).length]).toEqual([size, size]);
    });

    test('write before their end', async () => {
      const command = new TestCommand(guest, ['sh', '-c', 'echo first; read line; echo "second $line"']);
      await command.says('first');
      expect(command.calls).not.toContain('exited');
      await command.command.write(Buffer.from('answer\n'));
      await command.over;
      expect(command.out).toBe('first\nsecond answer\n');
    });

    test('read their input to its end', async () => {
      const data = randomBytes(2_000_000);
      const echoed = await run(guest, ['cat'], { input: data });
      expect(sha256(Buffer.concat(echoed.stdout))).toBe(sha256(data));
      const empty = await run(guest, ['sh', '-c', 'wc -c'], { input: '' });
      expect(empty.out.trim()).toBe('0');
    });

    test('get input that several writers send at once, complete', async () => {
      const command = new TestCommand(guest, ['sh', '-c', 'sleep 0.2; wc -c']);
      await Promise.all(Array.from({ length: 8 }, () => command.command.write(Buffer.alloc(50_000, 120))));
      command.command.end();
      await command.over;
      expect(command.out.trim()).toBe('400000');
    });

    test('may end without reading their input', async () => {
      const command = new TestCommand(guest, ['sh', '-c', 'exec <&-; sleep 0.3; exit 5']);
      await command.command.write(Buffer.alloc(1_000_000));
      await command.over;
      expect(command.code).toBe(5);
      expect(command.inputFailures.length).toBeLessThanOrEqual(1);
    });

    test('that are not found fail with their kind', async () => {
      for (const name of ['no-such-program', `${directory}/no-such-program`, '']) {
        const { failure, calls } = await run(guest, [name]);
        expect(failure, name).toMatchObject({ kind: 'not_found', errno: 2, errnoName: 'ENOENT' });
        expect(calls).toEqual(['failed']);
      }
    });

    test('that cannot be executed fail with their kind', async () => {
      await writeAll(files, `${directory}/plain`, 'text');
      const denied = await run(guest, [`${directory}/plain`]);
      expect(denied.failure).toMatchObject({ kind: 'permission_denied', errnoName: 'EACCES' });
      await files.setStat(`${directory}/plain`, { mode: 0o755 }, { follow: true });
      const broken = await run(guest, [`${directory}/plain`]);
      expect(broken.failure).toMatchObject({ kind: 'not_executable', errnoName: 'ENOEXEC' });
      expect((await run(guest, [directory])).failure?.kind).toBe('permission_denied');
    });

    test('are looked up in the PATH that they get', async () => {
      await files.mkdir(`${directory}/bin`, null);
      await writeAll(files, `${directory}/bin/own`, '#!/bin/sh\necho own\n');
      await files.setStat(`${directory}/bin/own`, { mode: 0o755 }, { follow: true });
      const long = 'x'.repeat(5_000);
      expect((await run(guest, ['own'], { env: [`PATH=${long}::${directory}/bin`] })).out).toBe('own\n');
      expect((await run(guest, ['own'], { env: ['PATH='] })).failure?.kind).toBe('not_found');
    });

    test('with too long arguments fail', async () => {
      const long = await run(guest, ['echo', 'x'.repeat(300_000)]);
      expect(long.failure).toMatchObject({ kind: 'bad_args', errnoName: 'E2BIG' });
      const refused = await run(guest, ['echo', 'x'.repeat(200_000)]);
      expect(refused.failure).toMatchObject({ kind: 'bad_args', errnoName: 'E2BIG' });
      const many = await run(guest, ['echo', ...Array<string>(20_000).fill('x')]);
      expect(many.failure).toMatchObject({ kind: 'bad_args', errnoName: 'E2BIG' });
      const nul = await run(guest, ['echo', 'a\0b']);
      expect(nul.failure).toMatchObject({ kind: 'bad_args', errnoName: 'EINVAL' });
      expect((await run(guest, ['sh', '-c', 'echo $#', ...Array<string>(5_000).fill('x')])).out).toBe(
        '4999\n',
      );
    });

    test('get their resource limits', async () => {
      const limit = (resource: string, soft: number, hard: number) => ({
        rlimits: [{ resource, soft: BigInt(soft), hard: BigInt(hard) }],
      });
      expect(await sh(guest, 'ulimit -n; ulimit -Hn', limit('nofile', 64, 128))).toBe('64\n128');
      expect(await sh(guest, 'ulimit -c', limit('core', 0, 0))).toBe('0');
      const swapped = await run(guest, ['true'], limit('nofile', 128, 64));
      expect(swapped.failure).toMatchObject({ kind: 'resource_limit', errnoName: 'EINVAL' });
      const unknown = await run(guest, ['true'], limit('nonsense', 1, 1));
      expect(unknown.failure).toMatchObject({ kind: 'resource_limit' });
      expect(unknown.failure!.message).toContain('nonsense');
    });

    test('get signals together with their children', async () => {
      const script = 'sleep 1000 & echo $!; wait';
      const command = new TestCommand(guest, ['sh', '-c', script]);
      await command.says('\n');
      command.command.signal(15);
      await command.over;
      expect(command.code).toBe(143);
      await until(
        () => isAlive(guest, command.out.trim()),
        (alive) => !alive,
      );
      const trapped = new TestCommand(guest, [
        'sh',
        '-c',
        'trap "exit 9" USR1; echo ready; sleep 1000 & wait',
      ]);
      await trapped.says('ready');
      trapped.command.signal(10);
      await trapped.over;
      expect(trapped.code).toBe(9);
    });

    test('are killed with their children when they are closed', async () => {
      const script = 'sh -c "sleep 1000 & sleep 1000" & echo $!; trap "" TERM; sleep 1000';
      const command = new TestCommand(guest, ['sh', '-c', script]);
      await command.says('\n');
      command.command.close();
      await command.over;
      expect(command.code).toBe(137);
      await until(
        () => isAlive(guest, command.out.trim()),
        (alive) => !alive,
      );
    });

    test('are killed also when they are closed at once', async () => {
      const mark = `${1_000_000 + Math.floor(Math.random() * 1_000_000)}`;
      const before = await target.census();
      const commands = Array.from({ length: 40 }, () => new TestCommand(guest, ['sleep', mark]));
      for (const { command } of commands) command.close();
      await Promise.all(commands.map(({ over }) => over));
      await until(
        () => target.census(),
        ({ processes }) => processes <= before.processes,
      );
      expect(commands.every(({ code }) => code === 137)).toBe(true);
    });

    test('end although a child keeps their output open', async () => {
      const started = Date.now();
      const command = await run(guest, ['sh', '-c', 'sleep 600 & echo $!; exit 4']);
      expect(command.code).toBe(4);
      expect(Date.now() - started).toBeLessThan(60_000);
      const child = command.out.trim();
      expect(await isAlive(guest, child)).toBe(true);
      await sh(guest, `kill -9 ${child}`);
      const noisy = await run(guest, ['sh', '-c', SPEAKING_CHILD]);
      expect(noisy.code).toBe(6);
      expect(noisy.size).toBeGreaterThan(0);
    });

    test('without credit block on their pipe while others go on', async () => {
      const credit = 100_000;
      const stalled = new TestCommand(guest, ['yes'], { credit, grants: false });
      await until(
        () => Promise.resolve(stalled.size),
        (size) => size > 0,
      );
      for (let i = 0; i < 5; i++) expect(await sh(guest, 'echo on')).toBe('on');
      await sleep(300);
      const size = stalled.size;
      expect(size).toBeLessThanOrEqual(credit);
      stalled.command.grant(50_000);
      await until(
        () => Promise.resolve(stalled.size),
        (now) => now > size,
      );
      await sleep(100);
      expect(stalled.size).toBeLessThanOrEqual(credit + 50_000);
      stalled.command.close();
      await stalled.over;
      expect(stalled.code).toBe(137);
    });

    test('with many small pieces of output lose none, and stop without credit', async () => {
      const script = 'i=0; while [ $i -lt 3000 ]; do echo $i; i=$((i+1)); done';
      const granted = await run(guest, ['sh', '-c', script], { credit: 1_000 });
      expect(granted.out).toBe(Array.from({ length: 3_000 }, (_, i) => `${i}\n`).join(''));
      const stalled = new TestCommand(guest, ['sh', '-c', script], { credit: 10_000, grants: false });
      await sleep(300);
      expect(stalled.stdout.length).toBeLessThanOrEqual(40);
      stalled.command.grant(1_000_000);
      await stalled.over;
      expect(stalled.out).toBe(granted.out);
    });

    test('that do not read block their writer alone', async () => {
      const deaf = new TestCommand(guest, ['sleep', '1000']);
      let isWritten = false;
      const writing = deaf.command.write(Buffer.alloc(1_000_000)).then(() => (isWritten = true));
      expect(await sh(guest, 'cat', { input: 'others' })).toBe('others');
      await sleep(100);
      expect(isWritten).toBe(false);
      deaf.command.close();
      await deaf.over;
      await writing;
      expect(isWritten).toBe(true);
    });

    test('run at once', async () => {
      const ends = await Promise.all(
        Array.from({ length: 48 }, (_, i) =>
          run(guest, ['sh', '-c', `read x; echo $x; exit ${i}`], { input: `${i}\n` }),
        ),
      );
      expect(ends.map(({ code, out }) => [code, out])).toEqual(ends.map((_, i) => [i, `${i}\n`]));
    });

    test('beyond the number that the sandbox can serve are refused', async () => {
      const commands = Array.from({ length: 300 }, () => new TestCommand(guest, ['sleep', '1000']));
      await until(
        () => Promise.resolve(commands),
        (all) => all.every(({ calls }) => calls.length > 0),
      );
      const refused = commands.filter(({ failure }) => failure);
      expect(refused.every(({ failure }) => failure!.kind === 'resource_limit')).toBe(true);
      expect(commands.length - refused.length).toBeGreaterThanOrEqual(64);
      for (const { command } of commands) command.close();
      await Promise.all(commands.map(({ over }) => over));
      expect(await sh(guest, 'echo well')).toBe('well');
    });
  });
}
