import { Buffer } from 'node:buffer';
import { expect, onTestFinished, test } from 'vitest';
import { commandStateOf } from '../../src/guest/command-end.js';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { sh } from '../support/guest.js';
import { makeDisk } from '../support/microvm/disks.js';
import { startMachine } from '../support/microvm/machine.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { IMAGE, makeFolder, script, startRun } from '../support/microvm/runs.js';
import { until } from '../support/polling.js';

const LIMITS = { rlimits: [{ resource: 'nofile', soft: 100, hard: 200 }] };

describeMicrovm('a run in a virtual machine', () => {
  test('has everything of its specification, and ends with the code of its command', async () => {
    const text = `
      echo $PATH $FROM $SHARED $HOSTNAME $HOME $TOKEN; hostname; pwd; id
      stat -c '%u %a' . ; cat /etc/hosts; hello; ulimit -n; ulimit -Hn
      grep CapEff /proc/self/status | tr -dc 0-9; echo; touch /sys/x /.sandkeep/x
      echo '#!/bin/sh' >/scratch/b; chmod +x /scratch/b; /scratch/b; dd if=/dev/zero of=/scratch/f bs=1k count=2000
      echo kept >kept; echo last words >&2; exit 7`;
    const machine = await startRun({
      ...script(text),
      ...LIMITS,
      endsWithCommand: true,
      hostname: 'named.example',
      user: 'ann',
      workdir: '/made/for/her',
      env: [
        { key: 'SHARED', value: 'request' },
        { key: 'TOKEN', value: '', secret: true },
      ],
      scripts: { hello: 'echo hello from a script of $(id -un)' },
      mounts: [{ type: 'tmpfs', guest: '/scratch', size_mib: 1, options: { noexec: true } }],
    });
    expect(await machine.line('exit')).toBe('exit 7 0');
    expect(await machine.ended).toBe(0);
    expect(machine.output.stdout().split('\n')).toEqual([
      '/bin:/.sandkeep/scripts image request named.example /home/ann secret',
      'named.example',
      '/made/for/her',
      'uid=1000(ann) gid=1000(ann) groups=2000(team)',
      '1000 755',
      '127.0.0.1\tlocalhost',
      'hello from a script of ann',
      '100',
      '200',
      '0000000000000000',
      '',
    ]);
    const errors = machine.output.stderr();
    expect(errors).toMatch(/touch: \/sys\/x: Permission denied/);
    expect(errors).toMatch(/touch: \/\.sandkeep\/x: Read-only file system/);
    expect(errors).toMatch(/No space left on device/);
    expect(errors).toMatch(/\/scratch\/b: Permission denied/);
    expect(errors).toMatch(/last words\n$/);
    expect(machine.lines).toEqual(['clock', 'ready', 'exit 7 0']);
  });

  test('keeps its disk for the next one, and nothing of the mounts', async () => {
    const disk = makeDisk(makeFolder());
    const write = `mkdir /data && mv /etc/group /data/group && rm /etc/passwd && mv /bin /bin2 && /bin2/ln -s bin2 /bin
      chown 5:6 /data && chmod 1711 /data && mknod /data/fifo p && ln /data/group /data/second && truncate -s 1G /data/holes
      touch /dev/shm/gone; sync`;
    const first = await startRun({ ...script(write), endsWithCommand: true }, { disk });
    expect(await first.line('exit')).toBe('exit 0 0');
    await first.ended;
    const read = `ls /etc; stat -c '%n %u:%g %a %h %F %s' /data /data/*; ls -ld /bin; ls /dev/shm`;
    const second = await startRun({ ...script(read), endsWithCommand: true }, { disk });
    expect(await second.line('exit')).toBe('exit 0 0');
    await second.ended;
    const [etc, ...rest] = second.output.stdout().trim().split('\n');
    expect(etc).toBe('hosts');
    expect(rest.join('\n')).toMatch(
      new RegExp(
        [
          '^/data 5:6 1711 2 directory \\d+',
          '/data/fifo 0:0 644 1 fifo 0',
          '/data/group 0:0 644 2 regular file 38',
          '/data/holes 0:0 644 1 regular file 1073741824',
          '/data/second 0:0 644 2 regular file 38',
          'lrwx.*/bin -> bin2$',
        ].join('\n'),
      ),
    );
  });

  test('has the patches of its first start, in their order and inside its own root', async () => {
    const disk = makeDisk(makeFolder());
    const text = `cd /p; stat -c '%n %a %F' . d f l new/deep/file; cat f /etc/group new/deep/file; readlink l; ls /etc /q`;
    const first: RunSpec['patches'] = [
      { type: 'mkdir', path: '/new' },
      { type: 'text', path: '/p/f', content: 'one\n', mode: 0o640, replace: false },
      { type: 'append', path: '/p/f', content: 'two\n' },
      { type: 'text', path: '/etc/group', content: 'root:x:0:\n', replace: true },
      { type: 'symlink', link: '/p/l', target: '/etc/../etc', replace: false },
      { type: 'symlink', link: '/p/l', target: '/new', replace: true },
      // Through a link of the image, whose target is absolute.
      {
        type: 'file',
        path: '/p/l/deep/file',
        content: Buffer.from('bytes\n').toString('base64'),
        replace: false,
      },
      { type: 'mkdir', path: '/p/d', mode: 0o1700 },
      { type: 'symlink', link: '/p/new', target: '/new', replace: false },
      { type: 'mkdir', path: '/q/x/y' },
      { type: 'remove', path: '/q/x' },
      { type: 'remove', path: '/etc/passwd' },
    ];
    const start = (patches: RunSpec['patches']) =>
      startRun({ ...script(text), endsWithCommand: true, patches }, { disk });
    const machine = await start(first);
    expect(await machine.line('exit')).toBe('exit 0 0');
    await machine.ended;
    const expected = [
      '. 755 directory',
      'd 1700 directory',
      'f 640 regular file',
      'l 777 symbolic link',
      'new/deep/file 644 regular file',
      'one\ntwo\nroot:x:0:\nbytes\n/new',
      '/etc:\ngroup\nhosts\n\n/q:\n',
    ].join('\n');
    expect(machine.output.stdout()).toBe(expected);
    // They are not made again.
    const again = await start([{ type: 'text', path: '/p/f', content: 'other', replace: true }]);
    await again.ended;
    expect(again.output.stdout()).toBe(expected);
  });

  test('does not start with patches that fail, and applies all of them on the next attempt', async () => {
    const disk = makeDisk(makeFolder());
    const whole = { ...script('ls /made'), endsWithCommand: true };
    const made: RunSpec['patches'] = [{ type: 'text', path: '/made/a', content: '', replace: false }];
    const bad: RunSpec['patches'] = [...made, { type: 'text', path: '/bin/sh', content: '', replace: false }];
    const machine = await startRun({ ...whole, patches: bad }, { disk });
    const reason = 'patches[1] cannot be applied: /bin/sh already exists, and replace is false';
    expect(await machine.line('failed')).toBe(`failed ${reason}`);
    await machine.ended;
    const next = await startRun({ ...whole, patches: made }, { disk });
    await next.ended;
    expect(next.output.stdout()).toBe('a\n');
  });

  test('goes on after its command, tells of its end, and stops when it is told to', async () => {
    const trap = `trap 'echo stopping; exit 0' TERM; echo started; while :; do sleep 1; done`;
    const machine = await startRun({ cmd: ['sh', '-c', 'exit 5'] });
    expect(await machine.line('end')).toBe('end 5 0 0');
    const guest = await machine.connect();
    expect(await commandStateOf(guest)).toMatchObject({ exitCode: 5, signal: null, outOfMemory: false });
    await sh(guest, `(${trap}) >/tmp/log 2>&1 & until [ -s /tmp/log ]; do sleep 0.1; done`);
    // Another year, so that the machine's own clock is not it.
    machine.say('clock 2000000000123456789');
    await until(
      () => sh(guest, 'date +%s'),
      (now) => Math.abs(Number(now) - 2_000_000_000) < 600,
    );
    machine.say(`seed ${'0f'.repeat(32)}`);
    machine.say('use');
    const [, micros, bytes, processes] = (await machine.line('use ')).split(' ').map(Number);
    expect(micros).toBeGreaterThan(10_000);
    expect(bytes).toBeGreaterThan(100_000);
    expect(processes).toBeGreaterThanOrEqual(3);
    machine.say(`no such line ${'x'.repeat(500)}`);
    machine.say('stop');
    expect(await machine.line('exit')).toBe('exit 0 0');
    expect(await machine.ended).toBe(0);
    expect(guest.gone.aborted).toBe(true);
  });

  test('passes its stop signal and the last output on', async () => {
    const text = `trap 'echo got it; exit 3' USR1; echo started; while :; do sleep 0.1; done`;
    const machine = await startRun(
      { ...script(text), endsWithCommand: true },
      {},
      { ...IMAGE, stopSignal: 'USR1' },
    );
    await until(
      async () => Promise.resolve(machine.output.stdout()),
      (output) => output === 'started\n',
    );
    machine.say('stop');
    expect(await machine.line('exit')).toBe('exit 3 0');
    await machine.ended;
    expect(machine.output.stdout()).toBe('started\ngot it\n');
  });

  test('tells of a command that ran out of memory', async () => {
    const machine = await startRun({ cmd: ['sh', '-c', 'tail /dev/zero'] });
    expect(await machine.line('end')).toBe('end 137 9 1');
    const guest = await machine.connect();
    expect(await sh(guest, 'echo alive')).toBe('alive');
  });

  test('has no capabilities with the profile "restricted", also as root', async () => {
    const text =
      'id -u; grep -E "CapEff|CapBnd|NoNewPrivs" /proc/self/status; mount -t tmpfs x /tmp; chown 1:1 /tmp';
    const machine = await startRun({
      ...script(text),
      endsWithCommand: true,
      securityProfile: 'restricted',
    });
    await machine.ended;
    const none = '0000000000000000';
    expect(machine.output.stdout()).toBe(`0\nCapEff:\t${none}\nCapBnd:\t${none}\nNoNewPrivs:\t1\n`);
    expect(machine.output.stderr().match(/(Operation not permitted|permission denied)/gi)).toHaveLength(2);
  });

  test('fails with the reason when it cannot start', async () => {
    const machine = await startRun({ ...script('echo never'), user: 'nobody-knows' });
    expect(await machine.line('failed')).toBe('failed cannot find the user nobody-knows: error 2');
    expect(await machine.ended).toBe(0);
    // It never ran, so it is not billed.
    expect(machine.lines).toEqual(['clock', machine.lines.at(-1)]);
    expect(machine.output.stdout()).toBe('');
    expect(machine.console()).toContain('cannot find the user nobody-knows');
  });

  test('stops although it has as many processes as it can', async () => {
    const machine = await startRun({ cmd: ['sh', '-c', 'f() { f | f & }; f; while :; do :; done'] });
    const guest = await machine.connect();
    await sh(guest, 'sleep 2').catch(() => undefined);
    machine.say('stop');
    expect(await machine.line('exit')).toMatch(/^exit \d+ /);
    expect(await machine.ended).toBe(0);
  });

  test('ends although nobody reads its output', async () => {
    const machine = await startMachine({
      unread: ['control', 'output'],
      init: { command: ['yes', 'x'.repeat(1000)], output: { rate: 1e9, burst: 1e9 } },
    });
    onTestFinished(() => machine.kill());
    const guest = await machine.connect();
    expect(await sh(guest, 'echo alive')).toBe('alive');
    // The machine may end before the shell has.
    await sh(guest, 'kill -TERM 1').catch(() => undefined);
    expect(await machine.ended).toBe(0);
  });
});
