import type Docker from 'dockerode';
import { readFile } from 'node:fs/promises';
import { afterEach, beforeAll, expect, test } from 'vitest';
import { GuestInit } from '../../src/engines/docker/guest-init.js';
import { readLogStream } from '../../src/engines/docker/log-stream.js';
import { AGENT_PROGRAM, INIT_PROGRAM, initArguments, signalNumber } from '../../src/guest/programs.js';
import { describeDocker, docker, IMAGE, makeImage } from '../support/docker.js';
import { until } from '../support/polling.js';

test.each([
  [undefined, 15],
  ['', 15],
  ['SIGQUIT', 3],
  ['winch', 28],
  ['9', 9],
  ['SIGRTMIN+3', 37],
  ['RTMIN', 34],
  ['RTMAX-2', 62],
  ['65', 15],
  ['SIGNONSENSE', 15],
])('the stop signal %s of an image is number %d', (name, number) => {
  expect(signalNumber(name)).toBe(number);
});

describeDocker('process 1 of a sandbox', () => {
  let init: GuestInit;
  let made: Docker.Container[] = [];

  beforeAll(async () => {
    makeImage();
    init = new GuestInit(docker, ((await docker.info()) as { Architecture: string }).Architecture);
    await init.ensureVolume();
  });
  afterEach(async () => {
    await Promise.all(made.map((container) => container.remove({ force: true })));
    made = [];
  });

  /** Starts a container whose process 1 is the program, with these arguments. */
  async function run(args: string[], more: Docker.ContainerCreateOptions = {}): Promise<Docker.Container> {
    const container = await docker.createContainer({
      Image: IMAGE,
      Entrypoint: [INIT_PROGRAM],
      Cmd: args,
      StopSignal: 'SIGTERM',
      OpenStdin: true,
      ...more,
      HostConfig: { NetworkMode: 'none', Mounts: [init.mount], ...more.HostConfig },
    });
    made.push(container);
    await container.start();
    return container;
  }

  const shell = (script: string, options: { untilExit?: boolean; stopSignal?: number } = {}) =>
    initArguments({
      command: ['sh', '-c', script],
      untilExit: options.untilExit ?? false,
      stopSignal: options.stopSignal ?? 15,
    });

  const ended = async (container: Docker.Container): Promise<number> =>
    ((await container.wait()) as { StatusCode: number }).StatusCode;

  async function logOf(
    container: Docker.Container,
    from: readonly ('stdout' | 'stderr')[] = ['stdout', 'stderr'],
  ): Promise<string> {
    const stream = await container.logs({ stdout: true, stderr: true, timestamps: true, follow: true });
    let text = '';
    const sources = new Set(from);
    for await (const lines of readLogStream(stream as AsyncIterable<Buffer>, { sources, after: {} }))
      for (const line of lines) text += line.text;
    return text;
  }

  /** The engine reports an end before the last output is written. */
  const expectLog = (container: Docker.Container, expected: string | RegExp) =>
    until(
      () => logOf(container),
      (log) => (typeof expected === 'string' ? log === expected : expected.test(log)),
    );

  /** The kernel drops signals to process 1 until it blocks them. */
  async function whenBlocking(container: Docker.Container): Promise<void> {
    const { State } = await container.inspect();
    await until(
      async () => readFile(`/proc/${State.Pid}/status`, 'utf8'),
      (status) => /^SigBlk:\s+0*[1-9a-f]/m.test(status),
    );
  }

  async function outputOf(container: Docker.Container, script: string): Promise<string> {
    const exec = await container.exec({ Cmd: ['sh', '-c', script], AttachStdout: true, AttachStderr: true });
    let text = '';
    for await (const chunk of await exec.start({ Tty: true })) text += String(chunk);
    return text.replaceAll('\r\n', '\n');
  }

  async function whenExists(container: Docker.Container, path: string): Promise<void> {
    await until(
      async () =>
        container.infoArchive({ path }).then(
          () => true,
          () => false,
        ),
      (exists) => exists,
    );
  }

  /** The state letter and the name of each process except process 1. */
  async function processes(container: Docker.Container): Promise<string[]> {
    const { Processes } = (await container.top({ ps_args: '-eo pid,stat,comm' })) as {
      Processes: string[][];
    };
    return Processes.slice(1).map(([, state, name]) => `${state![0]} ${name}`);
  }

  test('starts the command when a file exists, with a directory at the end of its PATH', async () => {
    const container = await run([
      '--await=/tmp/now',
      '--append-path=/added',
      '--until-exit',
      '--',
      'sh',
      '-c',
      'echo $PATH; exit 7',
    ]);
    expect(await outputOf(container, 'sleep 0.3; cat /proc/[2-9]*/comm')).not.toContain('echo');
    await outputOf(container, 'touch /tmp/now');
    expect(await ended(container)).toBe(7);
    await expectLog(container, /^\/.*\/bin:\/added\n$/);
  });

  test('ends at SIGTERM while its command waits', async () => {
    const container = await run(['--await=/never', '--', 'sleep', '600']);
    await whenBlocking(container);
    // After that time the engine would kill it: code 137.
    await container.stop({ t: 60 });
    expect(await ended(container)).toBe(0);
  });

  test('without a command stays until it is stopped, and uses nothing of the image', async () => {
    const empty = await run([], { Image: init.image });
    const busybox = await run([]);
    for (const container of [empty, busybox]) {
      expect((await container.inspect()).State.Running).toBe(true);
      await whenBlocking(container);
      await container.stop({ t: 60 });
      expect((await container.inspect()).State.ExitCode).toBe(0);
    }
  });

  test('stays after the end of its command, whatever the exit code', async () => {
    const container = await run(shell('echo done; exit 7'));
    await until(
      () => processes(container),
      (names) => names.length === 0,
    );
    expect((await container.inspect()).State.Running).toBe(true);
    await container.stop({ t: 60 });
    expect((await container.inspect()).State.ExitCode).toBe(0);
    await expectLog(container, 'done\nsandkeep: the command ended with code 7\n');
  });

  test.each([
    ['exit 0', 0],
    ['exit 7', 7],
    ['kill -9 $$', 137],
    ['sleep 600 & exit 3', 3],
  ])('with --until-exit ends with "%s" and exit code %d', async (script, code) => {
    expect(await ended(await run(shell(script, { untilExit: true })))).toBe(code);
  });

  test.each([
    ['no-such-program', 127, 'it or its interpreter does not exist'],
    ['/etc', 126, 'permission denied'],
  ])('explains a command %s that cannot run in the log: exit code %d', async (name, code, reason) => {
    const args = initArguments({ command: [name], untilExit: true, stopSignal: 15 });
    const container = await run(args);
    expect(await ended(container)).toBe(code);
    await expectLog(container, `sandkeep: cannot run "${name}": ${reason}\n`);
  });

  test('searches the PATH of the container for a name', async () => {
    const args = initArguments({
      command: ['busybox', 'echo', 'a b', '$HOME'],
      untilExit: true,
      stopSignal: 15,
    });
    const container = await run(args, { Env: ['PATH=/nowhere::/etc:/bin'] });
    expect(await ended(container)).toBe(0);
    await expectLog(container, 'a b $HOME\n');
  });

  test('reaps orphans', async () => {
    const container = await run(shell('for i in 1 2 3; do (sleep 0.1 & ) ; done; exec sleep 600'));
    // At first the shell is alone, too.
    const left = await until(
      () => processes(container),
      (names) => names.join() === 'S sleep',
    );
    expect(left).toEqual(['S sleep']);
  });

  test('sends the command the stop signal of the image at a stop, and waits for its end', async () => {
    const script =
      'trap "echo asked; sleep 1; echo bye; exit 9" QUIT; echo ready; while :; do sleep 0.1; done';
    for (const untilExit of [false, true]) {
      const container = await run(shell(script, { stopSignal: 3, untilExit }));
      await until(
        () => container.logs({ stdout: true, stderr: true }),
        (log) => String(log).includes('ready'),
      );
      await container.stop({ t: 60 });
      await expectLog(container, 'ready\nasked\nbye\n');
      expect((await container.inspect()).State.ExitCode).toBe(untilExit ? 9 : 0);
    }
  });

  test('sends every other process a signal at a stop, also those of an exec', async () => {
    const script =
      'trap "echo ended > /tmp/ended; exit" TERM; echo ready > /tmp/ready; while :; do sleep 0.1; done';
    const hasEnded = async () => {
      const container = await run(shell('exit 0'));
      const exec = await container.exec({ Cmd: ['sh', '-c', script] });
      await exec.start({ Detach: true });
      await whenExists(container, '/tmp/ready');
      await container.stop({ t: 60 });
      return container.infoArchive({ path: '/tmp/ended' }).then(
        () => true,
        () => false,
      );
    };
    // Each has two seconds, which a busy machine may exceed.
    expect(await until(hasEnded, (ended) => ended)).toBe(true);
  });

  test('waits at most two seconds for processes that ignore every signal', async () => {
    const container = await run(shell('exit 0'));
    const script = 'trap "" TERM HUP; echo ready > /tmp/ready; while :; do sleep 0.1; done';
    const exec = await container.exec({ Cmd: ['sh', '-c', script] });
    await exec.start({ Detach: true });
    await whenExists(container, '/tmp/ready');
    // Without that limit the stop would take sixty seconds, and the engine would kill the process: code 137.
    await container.stop({ t: 60 });
    expect((await container.inspect()).State.ExitCode).toBe(0);
  });

  test('forwards other signals to the command', async () => {
    const container = await run(
      shell('trap "echo one" USR1; trap "echo hangup" HUP; echo ready; while :; do sleep 0.1; done'),
    );
    const log = async () => String(await container.logs({ stdout: true, stderr: true }));
    for (const [signal, word] of [
      [undefined, 'ready'],
      ['SIGUSR1', 'one'],
      ['SIGHUP', 'hangup'],
    ] as const) {
      if (signal) await container.kill({ signal });
      await until(log, (text) => text.includes(word));
    }
    expect((await container.inspect()).State.Running).toBe(true);
  });

  test('keeps the agent open, so that no sandbox can hold up the agents of others by a lease', async () => {
    const container = await run([]);
    expect(await outputOf(container, 'busybox ls -l /proc/1/fd')).toContain(`-> ${AGENT_PROGRAM}`);
  });

  test('limits the output of its command at the source, and loses none of it', async () => {
    const lines = 48_000;
    const args = initArguments({
      command: ['sh', '-c', `busybox seq ${lines}; busybox seq ${lines} >&2`],
      untilExit: true,
      stopSignal: 15,
      output: { rate: 2_000_000, burst: 400_000 },
    });
    const begun = performance.now();
    const container = await run(args);
    expect(await ended(container)).toBe(0);
    // The times that the engine notes may be late.
    const millis = performance.now() - begun;
    const numbers = Array.from({ length: lines }, (_, index) => `${index + 1}\n`).join('');
    for (const source of ['stdout', 'stderr'] as const) {
      await until(
        async () => (await logOf(container, [source])) === numbers,
        (isWhole) => isWhole,
      );
    }
    // A line counts 128 bytes more. The pipes hold 64 KiB each when the command ends, and these pass at once.
    const tokens = 2 * (numbers.length + 128 * lines);
    const atOnce = 400_000 + (2 * 65_536 * (numbers.length + 128 * lines)) / numbers.length;
    expect(millis).toBeGreaterThan(((tokens - atOnce) / 2_000_000) * 1_000);
  });

  test('relays output of any size and without line ends, in order, until the command ends', async () => {
    const script =
      'busybox dd if=/dev/zero bs=65536 count=20 2> /dev/null; printf end; busybox yes | busybox head -c 131072 >&2';
    const container = await run(shell(script, { untilExit: true }));
    expect(await ended(container)).toBe(0);
    const length = 20 * 65_536 + 3 + 131_072;
    const text = await until(
      () => logOf(container),
      (log) => log.length >= length,
    );
    expect(text.replaceAll('y\n', '') === `${'\0'.repeat(20 * 65_536)}end`).toBe(true);
    expect(text.length).toBe(length);
  });

  test('ends with its command while a process that is left writes more', async () => {
    const container = await run(shell('busybox yes & printf "last words"; exit 4', { untilExit: true }));
    expect(await ended(container)).toBe(4);
    await until(
      async () => (await logOf(container)).replaceAll('y\n', '').replace(/y$/, ''),
      (rest) => rest === 'last words',
    );
  });

  test('gives its command, and each user, the output as a file, and no process the pipe of the engine', async () => {
    const script =
      'echo one > /dev/stdout; echo two >> /proc/self/fd/2; busybox test -t 1 || echo no terminal; ' +
      'echo forged > /proc/1/fd/1 || echo refused';
    for (const user of ['0', '1000:1000']) {
      const container = await run(shell(script, { untilExit: true }), { User: user });
      expect(await ended(container)).toBe(0);
      const text = await until(
        () => logOf(container),
        (log) => ['one\n', 'two\n', 'no terminal\n', 'refused\n'].every((word) => log.includes(word)),
      );
      expect(text).not.toContain('forged\n');
    }
    const idle = await run([]);
    expect(await outputOf(idle, 'echo forged > /proc/1/fd/1 || echo refused')).toContain('refused\n');
    expect(await outputOf(idle, 'echo forged > /proc/1/fd/2 || echo refused')).toContain('refused\n');
  });

  test('uses no processor time while its command writes nothing', async () => {
    const container = await run(shell('echo x; exec sleep 600'));
    await until(
      () => container.logs({ stdout: true }),
      (log) => String(log).includes('x'),
    );
    const switches = async () => {
      const status = await outputOf(container, 'cat /proc/1/status');
      return Number(/^voluntary_ctxt_switches:\s*(\d+)/m.exec(status)![1]);
    };
    const before = await switches();
    await new Promise((resolve) => setTimeout(resolve, 1_000));
    // A clock of 20 ms would switch fifty times. Each exec may wake it for an orphan.
    expect((await switches()) - before).toBeLessThan(20);
  });

  test('cannot be changed or removed from inside the sandbox', async () => {
    const container = await run([]);
    for (const attempt of [
      `rm -f ${INIT_PROGRAM}`,
      `echo x > ${INIT_PROGRAM}`,
      'mount -o remount,rw /.sandkeep/bin',
    ]) {
      const exec = await container.exec({
        Cmd: ['sh', '-c', attempt],
        AttachStdout: true,
        AttachStderr: true,
      });
      const stream = await exec.start({});
      stream.resume();
      await new Promise((resolve) => stream.on('end', resolve));
      expect((await exec.inspect()).ExitCode, attempt).not.toBe(0);
    }
    await container.restart({ t: 60 });
    expect((await container.inspect()).State.Running).toBe(true);
  });

  test('has its volume filled when another installation takes the image away meanwhile', async () => {
    const name = `sandkeep-init-gone-${process.pid}`;
    let removals = 0;
    class Disturbed extends GuestInit {
      override readonly image = `sandkeep-test/${name}:1`;
      protected override async ensureImage(): Promise<void> {
        await super.ensureImage();
        if (removals < 2) await docker.getImage(this.image).remove();
        removals += 1;
      }
    }
    const { Architecture } = (await docker.info()) as { Architecture: string };
    const disturbed = new Disturbed(docker, Architecture, name);
    try {
      await disturbed.ensureVolume();
      expect(removals).toBe(3);
      await disturbed.createContainer({ name: `${name}-user`, Entrypoint: [INIT_PROGRAM], Cmd: ['--check'] });
    } finally {
      for (const each of [`${name}-user`, disturbed.volume])
        await docker.getContainer(each).remove({ force: true });
      await docker.getVolume(disturbed.volume).remove();
      await docker.getImage(disturbed.image).remove();
    }
  });

  test('has its volume filled again after an interrupted copy', async () => {
    const { Architecture } = (await docker.info()) as { Architecture: string };
    const copy = new GuestInit(docker, Architecture, `sandkeep-init-test-${process.pid}`);
    try {
      await docker.createVolume({ Name: copy.volume });
      const broken = await docker.createContainer({
        Image: IMAGE,
        Entrypoint: ['sh', '-c', `echo > ${INIT_PROGRAM}`],
        HostConfig: { Mounts: [{ Type: 'volume', Source: copy.volume, Target: '/.sandkeep/bin' }] },
      });
      await broken.start();
      await broken.wait();
      await broken.remove();
      await copy.ensureVolume();
      const { State } = await docker.getContainer(copy.volume).inspect();
      expect([State.Status, State.ExitCode]).toEqual(['exited', 0]);
    } finally {
      await docker.getContainer(copy.volume).remove({ force: true });
      await docker.getVolume(copy.volume).remove();
    }
  });
});
