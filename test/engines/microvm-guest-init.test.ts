import { expect, test } from 'vitest';
import type { RunSpec } from '../../src/spec/run-spec.js';
import { sh } from '../support/guest.js';
import { describeMicrovm } from '../support/microvm/needs.js';
import { IMAGE, script, startRun } from '../support/microvm/runs.js';
import { until } from '../support/polling.js';

/** Programs that the init of busybox starts: one once, and one again after each end. */
const SERVICES = '::sysinit:/bin/echo from init\n::respawn:/bin/sh -c "echo again; sleep 600"\n';
const inittab = (text = SERVICES): Pick<RunSpec, 'patches'> => ({
  patches: [{ type: 'text', path: '/etc/inittab', content: text, replace: false }],
});

/** The pattern does not find itself. */
const HELPER = 'grep -l "[b]eside=" /proc/[0-9]*/cmdline 2> /dev/null | cut -d/ -f3';

describeMicrovm('the init of an image in a virtual machine', () => {
  test('is process 1, with services, and the agent and the command run beside it', async () => {
    const machine = await startRun({
      ...script('echo "command $$ of $(id -un)"; exit 3'),
      ...inittab(),
      user: 'ann',
      workdir: '/made/for/her',
      init: { cmd: 'auto', env: [['SHARED', 'init']] },
    });
    await machine.line('ready');
    // Its end is told, and the sandbox stays up.
    expect(await machine.line('end')).toMatch(/^end 3 0 0/);
    const agent = await machine.connect();
    const facts = await sh(
      agent,
      "tr '\\0' ' ' < /proc/1/cmdline; echo; id -un; tr '\\0' ' ' < /proc/$PPID/cmdline; echo; cat /proc/self/cgroup",
    );
    expect(facts.split('\n').map((line) => line.trim())).toEqual([
      // That of busybox shortens its name. Ours has a path and options.
      'init',
      'ann',
      '/.sandkeep/bin/agent',
      '0::/sandkeep',
    ]);
    await until(
      async () => Promise.resolve(machine.output.stdout()),
      (text) => text.includes('from init') && text.includes('again') && /command \d+ of ann/.test(text),
    );
    agent.close();
    // The init ends in order: its services get their signals first.
    machine.say('stop');
    expect(await machine.line('exit')).toBe('exit 0 0');
    expect(await machine.ended).toBe(0);
  });

  test('has the variables of the sandbox and its own, and all capabilities of a root', async () => {
    const machine = await startRun({
      ...inittab(),
      init: {
        cmd: '/bin/init',
        env: [
          ['SHARED', 'init'],
          ['EXTRA', 'one two'],
        ],
      },
      user: 'ann',
    });
    await machine.line('ready');
    const agent = await machine.connect();
    // An agent of ann may not read them.
    const text = await sh(agent, "cat /proc/1/status | grep -E '^(Uid|CapEff)'");
    expect(text).toMatch(/Uid:\t0\t0/);
    expect(text).not.toMatch(/CapEff:\t0+$/m);
    agent.close();
    await machine.kill();
    const asRoot = await startRun({
      ...inittab(),
      init: {
        cmd: '/bin/init',
        env: [
          ['SHARED', 'init'],
          ['EXTRA', 'one two'],
        ],
      },
    });
    await asRoot.line('ready');
    const root = await asRoot.connect();
    const variables = (await sh(root, "tr '\\0' '\\n' < /proc/1/environ")).split('\n');
    expect(variables).toEqual(
      expect.arrayContaining(['FROM=image', 'SHARED=init', 'EXTRA=one two', 'container=sandkeep']),
    );
    // The agents come back after their listener was killed: the sandbox cannot shut the service out.
    const pid = await sh(root, HELPER);
    await sh(root, `kill -9 ${pid}`).catch(() => undefined);
    root.close();
    const again = await until(
      async () =>
        machineAnswers(async () => {
          const other = await asRoot.connect();
          try {
            return await sh(other, HELPER);
          } finally {
            other.close();
          }
        }),
      (answer) => answer !== undefined && answer !== pid,
    );
    expect(again).toMatch(/^\d+$/);
    // A power-off in the sandbox ends it.
    const last = await asRoot.connect();
    await sh(last, 'poweroff').catch(() => undefined);
    last.close();
    expect(await asRoot.line('exit')).toBe('exit 0 0');
  });

  test('ends with the command where the specification says so, with its code', async () => {
    const machine = await startRun({
      ...script('echo done; exit 7'),
      ...inittab(),
      init: { cmd: 'auto' },
      endsWithCommand: true,
    });
    expect(await machine.line('exit')).toBe('exit 7 0');
    // All output has arrived then.
    expect(await machine.ended).toBe(0);
    expect(machine.output.stdout()).toContain('done');
  });

  test('gets the signal of the image, and its own end is that of the sandbox', async () => {
    // A shell as process 1 ends on the signal that it waits for.
    const wait = 'trap "exit 5" USR1; echo waits; while :; do sleep 0.1; done';
    const machine = await startRun(
      { init: { cmd: '/bin/sh', args: ['-c', wait] } },
      {},
      { ...IMAGE, stopSignal: 'SIGUSR1' },
    );
    await machine.line('ready');
    await until(
      async () => Promise.resolve(machine.output.stdout()),
      (text) => text === 'waits\n',
    );
    machine.say('stop');
    expect(await machine.line('exit')).toBe('exit 5 0');
  });

  test.each([
    ['a program that is not there', { init: { cmd: '/no/such' } }, /^failed cannot run \/no\/such: error 2$/],
    [
      'a user that is not there',
      { init: { cmd: 'auto' }, user: 'nobody' },
      /^failed cannot find the user nobody/,
    ],
  ] as const)('does not start with %s', async (_, spec, reason) => {
    const machine = await startRun({ ...inittab(), ...spec });
    expect(await machine.line('failed')).toMatch(reason);
    await machine.ended;
  });
});

async function machineAnswers<T>(work: () => Promise<T>): Promise<T | undefined> {
  return work().catch(() => undefined);
}
