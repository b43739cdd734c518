import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once, setMaxListeners } from 'node:events';
import { openSync, closeSync, readdirSync, readFileSync, readlinkSync, statSync } from 'node:fs';
import type { Socket } from 'node:net';
import { buffer, text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { ConnectError } from '../../src/engine/connect-error.js';
import { DirectPorts, PORT_LIMITS, type PortLimits } from '../../src/engines/docker/ports/direct-ports.js';
import type { ContainerProcess } from '../../src/engines/docker/container-namespace.js';
import { CONNECT, PortProgram } from '../../src/engines/docker/ports/port-program.js';
import { errnoOf } from '../../src/guest/errno.js';
import { connectHere } from '../../src/sandboxes/ports/connect-here.js';
import { installApplets, startSandbox, type TestSandbox } from '../support/docker-guest.js';
import { describeDocker, makeImage } from '../support/docker.js';
import { sh, TestCommand } from '../support/guest.js';
import { until } from '../support/polling.js';
import { streamTests } from './guest/streams.js';

const NEVER = new AbortController().signal;
setMaxListeners(0, NEVER);
const REFUSED = errnoOf('ECONNREFUSED');

describeDocker('ports of a sandbox without its agent', () => {
  const opened: DirectPorts[] = [];
  let sandbox: TestSandbox;
  let find: () => Promise<ContainerProcess | undefined>;
  beforeAll(async () => {
    makeImage();
    // It has no network: the loopback addresses are there.
    sandbox = await startSandbox();
    installApplets(sandbox.container);
    find = async () => processOf(sandbox);
  });
  afterAll(async () => {
    for (const ports of opened) ports.close();
    await sandbox.remove();
  });

  async function processOf({ container }: TestSandbox): Promise<ContainerProcess | undefined> {
    const { Id, State } = await container.inspect();
    return State.Running ? { containerId: Id, pid: State.Pid } : undefined;
  }

  function portsOf(options: { find?: typeof find; limits?: PortLimits } = {}): DirectPorts {
    const ports = new DirectPorts({ instanceId: randomUUID(), find, ...options });
    opened.push(ports);
    return ports;
  }

  const at = (port: number, sandboxId = 'box') => ({ orgId: 'org', sandboxId, port });

  const serve = async (port: number, script: string) =>
    new TestCommand(await sandbox.open(), ['nc', '-ll', '-p', `${port}`, '-e', 'sh', '-c', script]);

  const connect = async (ports: DirectPorts, port: number): Promise<Socket> =>
    (await until(
      async () => ports.connect(at(port), NEVER).catch((error: unknown) => error),
      (found) => found !== undefined && !(found instanceof ConnectError),
    )) as Socket;

  /** It may close with an error. */
  const closeOf = async (socket: Socket) => new Promise((resolve) => socket.once('close', resolve));

  /** The programs in it, by the namespace of the sandbox. */
  async function programs({ pid }: ContainerProcess): Promise<number[]> {
    const namespace = readlinkSync(`/proc/${pid}/ns/net`);
    return readdirSync('/proc')
      .map(Number)
      .filter((each) => each > 0 && isProgramIn(each, namespace));
  }

  function isProgramIn(pid: number, namespace: string): boolean {
    try {
      return (
        readFileSync(`/proc/${pid}/cmdline`, 'latin1').startsWith(CONNECT) &&
        readlinkSync(`/proc/${pid}/ns/net`) === namespace
      );
    } catch {
      return false;
    }
  }

  streamTests(
    async () => {
      const guest = await sandbox.open();
      return {
        guest,
        directory: '/tmp',
        census: () => Promise.reject(new Error()),
        close: async () => undefined,
      };
    },
    async (_guest, { port, signal, touch }) => {
      touch();
      const ports = (opened[0] ??= portsOf());
      const runtime = {
        connectPort: async (place: object) => ports.connect({ ...at(port), ...place }, signal),
      };
      return (await connectHere({ runtime } as never, at(port), signal))!;
    },
  );

  test('are opened by a program without any right, in the namespace of the sandbox', async () => {
    const ports = portsOf();
    const others = await programs((await find())!);
    await expect(ports.connect(at(1), NEVER)).rejects.toMatchObject({ errno: REFUSED });
    const pid = (await programs((await find())!)).find((each) => !others.includes(each));
    const status = readFileSync(`/proc/${pid}/status`, 'utf8');
    for (const set of ['Inh', 'Prm', 'Eff', 'Bnd', 'Amb'])
      expect(status).toMatch(new RegExp(`^Cap${set}:\\s0+$`, 'm'));
    expect(status).toMatch(/^NoNewPrivs:\s1$/m);
    expect(status).toMatch(/^Uid:\s19\d{8}\b/m);
    expect(status).toMatch(/^Groups:\s*$/m);
    // Another process of its user may not look into it. It has no descriptor of the service but its own four.
    expect(statSync(`/proc/${pid}/fd`).uid).toBe(0);
    expect(readdirSync(`/proc/${pid}/fd`).toSorted()).toEqual(['0', '1', '2', '3', '4']);
    ports.close();
    await until(
      async () => programs((await find())!),
      (left) => !left.includes(pid!),
    );
  });

  test('go on after the end of the program', async () => {
    const ports = portsOf();
    const server = await serve(7_101, 'cat');
    // The agent is reached by one of them.
    const others = await programs((await find())!);
    const stream = await connect(ports, 7_101);
    stream.write('before');
    await once(stream, 'data');
    const closed = closeOf(stream);
    const own = (await programs((await find())!)).filter((each) => !others.includes(each));
    expect(own).toHaveLength(1);
    process.kill(own[0]!, 'SIGKILL');
    await closed;
    const next = await until(
      async () => ports.connect(at(7_101), NEVER),
      (found) => found !== undefined,
    );
    next!.end('after');
    expect(await text(next!)).toBe('after');
    server.command.signal(9);
  });

  test('are not those of a process with the number of the sandbox', async () => {
    const { pid, containerId } = (await find())!;
    const foreign = spawn('unshare', ['--net', 'sleep', '60']);
    await once(foreign, 'spawn');
    const wrong = [
      { pid, containerId: containerId.replace(/^./, (digit) => (digit === '0' ? '1' : '0')) },
      { pid: foreign.pid!, containerId },
      { pid: process.pid, containerId },
      { pid: 4_194_303, containerId },
    ];
    for (const found of wrong) {
      await expect(PortProgram.start(found, 1_900_000_001)).rejects.toThrow();
      expect(await portsOf({ find: async () => found }).connect(at(1), NEVER)).toBeUndefined();
    }
    expect(await portsOf({ find: async () => undefined }).connect(at(1), NEVER)).toBeUndefined();
    foreign.kill();
  });

  test('have bounds for each sandbox, each organization and in all', async () => {
    const server = await serve(7_102, 'cat');
    for (const limits of [
      { ...PORT_LIMITS, ofSandbox: 2 },
      { ...PORT_LIMITS, ofOrg: 2 },
      { ...PORT_LIMITS, total: 2 },
    ]) {
      const ports = portsOf({ limits });
      const held = [await connect(ports, 7_102), await connect(ports, 7_102)];
      await expect(ports.connect(at(7_102), NEVER)).rejects.toMatchObject({ code: 'rate_limited' });
      held[0]!.destroy();
      await closeOf(held[0]!);
      expect(await ports.connect(at(7_102), NEVER)).toBeDefined();
      ports.close();
    }
    server.command.signal(9);
  });

  test('that nobody accepts delay no others', async () => {
    const guest = await sandbox.open();
    // A stopped server with a queue of one: the kernel lets further connections wait.
    const server = await serve(7_103, 'cat');
    const other = await serve(7_104, 'cat');
    const ports = portsOf();
    (await connect(ports, 7_103)).destroy();
    await sh(
      guest,
      "kill -STOP $(pidof nc | tr ' ' '\\n' | while read p; do tr '\\0' ' ' < /proc/$p/cmdline | grep -q 7103 && echo $p; done)",
    );
    const late = new AbortController();
    setMaxListeners(0, late.signal);
    const waiting = Array.from({ length: 600 }, async () =>
      ports.connect(at(7_103), late.signal).catch((error: unknown) => error),
    );
    const stream = await connect(ports, 7_104);
    stream.end('through');
    expect(await text(stream)).toBe('through');
    late.abort(new Error('too late'));
    const failures = (await Promise.all(waiting)).filter((found) => found instanceof Error);
    expect(failures.length).toBeGreaterThan(50);
    server.command.signal(9);
    other.command.signal(9);
  });

  test('end with the run, and the program with them, by the thousand', async () => {
    const crowd = await startSandbox();
    const container = (await processOf(crowd))!;
    // It is in the network namespace only, so it does not end with the sandbox.
    const script =
      "require('node:net').createServer((s) => s.on('error', () => {})).listen(8000, '127.0.0.1', 4096)";
    const server = spawn('nsenter', [`--net=/proc/${container.pid}/ns/net`, process.execPath, '-e', script]);
    try {
      const ports = portsOf({ find: async () => processOf(crowd) });
      await connect(ports, 8_000);
      const held = await Promise.all(
        Array.from({ length: 1_000 }, async () => (await ports.connect(at(8_000), NEVER))!),
      );
      expect(await programs(container)).toHaveLength(1);
      const closed = Promise.all(held.map(closeOf));
      await crowd.container.kill();
      await closed;
      expect(await ports.connect(at(8_000), NEVER)).toBeUndefined();
      await crowd.container.start();
      await until(
        async () => ports.connect(at(8_000), NEVER).catch((error: unknown) => error),
        (found) => found instanceof ConnectError,
      );
    } finally {
      server.kill();
      await crowd.remove();
    }
  });

  test('leave nothing when the service is killed', async () => {
    const { pid } = (await find())!;
    const program = [
      "const { spawn } = require('node:child_process'); const { openSync } = require('node:fs');",
      `const namespace = openSync('/proc/${pid}/ns/net');`,
      `const child = spawn(${JSON.stringify(CONNECT)}, ['4', '${pid}', '1900000002'],`,
      "{ stdio: ['pipe', 'ignore', 'inherit', 'ipc', namespace] });",
      "child.on('message', () => console.log(child.pid));",
    ].join('\n');
    const service = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'pipe', 'inherit'] });
    const [line] = (await once(service.stdout, 'data')) as [Buffer];
    const child = Number(String(line));
    expect(await programs((await find())!)).toContain(child);
    service.kill('SIGKILL');
    await until(
      async () => programs((await find())!),
      (left) => !left.includes(child),
    );
  });

  test('need the right to enter a namespace', async () => {
    const { pid } = (await find())!;
    const namespace = openSync(`/proc/${pid}/ns/net`, 'r');
    const args = ['--user', '--map-root-user', CONNECT, '4', `${pid}`, '1900000002'];
    const child = spawn('unshare', args, { stdio: ['pipe', 'ignore', 'pipe', 'pipe', namespace] });
    closeSync(namespace);
    expect((await buffer(child.stderr!)).toString()).toBe(
      'connect: cannot enter the network namespace: the kernel answers with the error 1\n',
    );
  });
});
