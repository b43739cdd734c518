import type Docker from 'dockerode';
import { randomUUID } from 'node:crypto';
import type { Socket } from 'node:net';
import { afterEach, beforeAll, afterAll, expect, test } from 'vitest';
import { CommandLines } from '../../src/engines/docker/command-lines.js';
import { GuestInit } from '../../src/engines/docker/guest-init.js';
import { DirectPorts } from '../../src/engines/docker/ports/direct-ports.js';
import { encodeHandover, handOver, type Handover } from '../../src/guest/handover.js';
import { INIT_PROGRAM, initArguments } from '../../src/guest/programs.js';
import { REPLY } from '../../src/guest/protocol.js';
import { describeDocker, docker, IMAGE, makeImage } from '../support/docker.js';
import { until } from '../support/polling.js';

const NEVER = new AbortController().signal;
const NOTHING: Handover = { command: [], untilExit: false, env: [], workdir: null, scripts: [] };

describeDocker('process 1 that takes its command later', () => {
  let init: GuestInit;
  let ports: DirectPorts;
  let made: Docker.Container[] = [];
  beforeAll(async () => {
    makeImage();
    init = new GuestInit(docker, ((await docker.info()) as { Architecture: string }).Architecture);
    await init.ensureVolume();
    ports = new DirectPorts({ instanceId: randomUUID(), find: async () => undefined });
  });
  afterEach(async () => {
    await Promise.all(made.map((container) => container.remove({ force: true })));
    made = [];
  });
  afterAll(() => ports.close());

  async function start(stopSignal = 15): Promise<Docker.Container> {
    const container = await docker.createContainer({
      Image: IMAGE,
      Entrypoint: [INIT_PROGRAM],
      Cmd: initArguments({ command: [], untilExit: false, stopSignal, agents: true, takesHandover: true }),
      Env: ['KEPT=own', 'CHANGED=own'],
      StopSignal: 'SIGTERM',
      OpenStdin: true,
      HostConfig: {
        NetworkMode: 'none',
        Mounts: [init.mount],
        Tmpfs: { '/.sandkeep/scripts': 'rw,exec,mode=1777' },
      },
    });
    made.push(container);
    await container.start();
    return container;
  }

  async function connect(container: Docker.Container): Promise<Socket> {
    const { Id, State } = await container.inspect();
    const process1 = { containerId: Id, pid: State.Pid };
    const found = await until(
      () => ports.connectProcess(Id, process1, 'handover'),
      (socket) => socket !== undefined,
    );
    return found!;
  }

  const give = async (container: Docker.Container, handover: Partial<Handover>) =>
    handOver(await connect(container), encodeHandover({ ...NOTHING, ...handover }), NEVER);

  /** Each piece has a header of eight bytes, whose last four have its length. */
  async function logOf(container: Docker.Container): Promise<string> {
    let rest = await container.logs({ stdout: true, stderr: true });
    let text = '';
    while (rest.length > 0) {
      const end = 8 + rest.readUInt32BE(4);
      text += rest.toString('utf8', 8, end);
      rest = rest.subarray(end);
    }
    return text;
  }

  const whenLogged = (container: Docker.Container, text: string) =>
    until(
      () => logOf(container),
      (log) => log.includes(text),
      30_000,
    );

  const commandOf = async (container: Docker.Container) => {
    const { Id, State } = await container.inspect();
    const lines = new CommandLines();
    try {
      return await lines.read(Id, State.Pid);
    } finally {
      lines.close();
    }
  };

  const sh = (script: string) => ['sh', '-c', script];

  /** The answer to these bytes. Undefined: process 1 closed the connection without one. */
  async function answerTo(container: Docker.Container, bytes: Buffer): Promise<number | undefined> {
    const socket = await connect(container);
    const answer = new Promise<number | undefined>((resolve) => {
      socket.once('data', (chunk: Buffer) => resolve(chunk[0]));
      socket.once('close', () => resolve(undefined));
    });
    socket.end(bytes);
    return answer.finally(() => socket.destroy());
  }

  test('starts it with its variables, working directory and scripts, and records its end', async () => {
    const container = await start();
    // Process 1 may not have begun yet.
    await until(
      () => commandOf(container),
      (state) => state === 'running',
    );
    await give(container, {
      command: sh('echo "$KEPT $CHANGED $ADDED"; pwd; /.sandkeep/scripts/greet; kill -9 $$'),
      env: ['CHANGED=late', 'ADDED=late'],
      workdir: '/made/for/it',
      scripts: [['greet', '#!/bin/sh\necho "greetings of $0"\n']],
    });
    const ended = await until(
      () => commandOf(container),
      (state) => typeof state === 'object',
    );
    expect(ended).toMatchObject({ exitCode: 137, signal: 9 });
    // The engine writes the streams in any order.
    const said = ['own late late', '/made/for/it', 'greetings of /.sandkeep/scripts/greet'];
    for (const line of [...said.map((each) => `${each}\n`), 'killed by signal 9'])
      await whenLogged(container, line);
    expect((await container.inspect()).State.Running).toBe(true);
  });

  test('starts one command in its life, whatever is handed over again', async () => {
    const container = await start();
    const first = { command: sh('echo first >> /starts; echo up; exec sleep 600') };
    await give(container, first);
    await whenLogged(container, 'up');
    await give(container, first);
    await give(container, { command: sh('echo other >> /starts; echo other') });
    expect(await answerTo(container, encodeHandover({ ...NOTHING, ...first }))).toBe(REPLY.hasOne);
    await container.stop({ t: 300 });
    expect((await container.inspect()).State.ExitCode).toBe(0);
    expect((await logOf(container)).match(/up|other/g)).toEqual(['up']);
  });

  test('ends with it where that is asked for, and passes the stop signal of the image on', async () => {
    const ending = await start();
    await give(ending, { command: sh('exit 7'), untilExit: true });
    expect(((await ending.wait()) as { StatusCode: number }).StatusCode).toBe(7);
    const stopped = await start(3);
    await give(stopped, {
      command: sh('trap "echo quit; exit 9" QUIT; echo up; while :; do sleep 0.1; done'),
    });
    await whenLogged(stopped, 'up');
    await stopped.stop({ t: 300 });
    await whenLogged(stopped, 'quit\n');
  });

  test('waits for the next connection after one that broke, or that made no sense', async () => {
    const container = await start();
    const whole = encodeHandover({ ...NOTHING, command: sh('echo whole') });
    for (const part of [0, 3, 4, 9, whole.length - 1])
      expect(await answerTo(container, whole.subarray(0, part))).toBeUndefined();
    const far = Buffer.from(whole);
    far.writeUInt16LE(60_000, 5);
    expect(await answerTo(container, far)).toBe(REPLY.bad);
    const long = Buffer.alloc(4, 0xff);
    expect(await answerTo(container, long)).toBe(REPLY.bad);
    const scripts = encodeHandover({ ...NOTHING, scripts: [['kept', 'text']] });
    scripts.writeUInt32LE(5, scripts.length - 8);
    expect(await answerTo(container, scripts)).toBe(REPLY.bad);
    expect(await answerTo(container, whole)).toBe(REPLY.taken);
    expect(await whenLogged(container, 'whole')).not.toContain('kept');
  });

  test('says in the log that a command cannot run, and stays', async () => {
    const container = await start();
    await give(container, { command: ['no-such-program'] });
    expect(await whenLogged(container, 'sandkeep: ')).toContain('cannot run "no-such-program"');
    expect(await commandOf(container)).toMatchObject({ exitCode: 127 });
  });

  test('stops without a command, and starts another one at its next start', async () => {
    const container = await start();
    await connect(container).then((socket) => socket.destroy());
    await container.stop({ t: 300 });
    expect((await container.inspect()).State.ExitCode).toBe(0);
    await container.start();
    await give(container, { command: sh('echo again') });
    await whenLogged(container, 'again');
  });
});
