import { Buffer } from 'node:buffer';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { openPort } from '../../../src/sandboxes/ports/open-port.js';
import { PROGRAM, run, start } from '../../support/cli.js';
import { describeDocker } from '../../support/docker.js';
import { startInside, type Inside } from '../../support/inside.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';

const ECHO = 7_001;
const COUNT = 7_002;
const NOBODY = 7_999;

describeDocker('sandkeep port-forward', () => {
  let inside: Inside;
  let front: TestService;
  let id: string;
  let env: Record<string, string>;
  beforeAll(async () => {
    inside = await startInside();
    front = await startTestService({ beside: inside.service, worker: false });
    id = await inside.start('box');
    env = { SANDKEEP_URL: inside.service.url, SANDKEEP_API_KEY: inside.client.key };
    const command = `busybox nc -ll -p ${ECHO} -e cat >/dev/null 2>&1 & busybox nc -ll -p ${COUNT} -e busybox wc -c >/dev/null 2>&1 & echo up`;
    const { body } = await inside.client.post(`/v1/sandboxes/${id}/exec`, {
      cmd: 'sh',
      args: ['-c', command],
    });
    expect(body.stdout).toBe('up\n');
    for (const port of [ECHO, COUNT]) {
      const place = { orgId: inside.client.org.id, sandboxId: id, port };
      await until(
        () => openPort(inside.service.ctx, place, new AbortController().signal).catch(() => undefined),
        (stream) => stream?.destroy() !== undefined,
      );
    }
  });
  afterAll(async () => {
    await front?.close();
    await inside?.close();
  });

  /** Starts the command, and returns the ports of this machine that it listens on. */
  async function forward(args: string[], more: Record<string, string> = {}) {
    const command = start([...PROGRAM, 'port-forward', ...args], { env: { ...env, ...more } });
    const pairs = args.filter((arg) => arg.includes(':')).length;
    const out = await until(
      async () => command.out(),
      (shown) => shown.split('\n').length > pairs,
      30_000,
    );
    const ports = [...out.matchAll(/forwarding 127\.0\.0\.1:(\d+) /g)].map(([, port]) => Number(port));
    return { ...command, ports };
  }

  /** Also by a reset, which a failure is. */
  const closeOf = (socket: Socket) => new Promise((resolve) => socket.once('close', resolve));

  function connectTo(port: number): Socket {
    return connect({ port, host: '127.0.0.1', allowHalfOpen: true }).on('error', () => undefined);
  }

  test('carries connections by name and by id, through every process, until it is interrupted', async () => {
    const { child, ended, ports } = await forward(['box', `0:${ECHO}`, `0:${COUNT}`]);
    const echo = connectTo(ports[0]!);
    echo.write('hello');
    expect(String((await once(echo, 'data'))[0])).toBe('hello');
    // Its session is older than that of the next connection, and so the first of the list.
    const count = connectTo(ports[1]!);
    count.end(Buffer.alloc(3_000_000));
    expect((await text(count)).trim()).toBe('3000000');
    // A session that is recorded, and that others can end.
    const { body } = await inside.client.get(`/v1/sandboxes/${id}/sessions`);
    const session = body.data.find(({ kind }: any) => kind === 'tcp');
    expect(session).toBeDefined();
    const closed = closeOf(echo);
    await inside.client.delete(`/v1/sandboxes/${id}/sessions/${session.id}`);
    await closed;
    expect(await inside.endOf(id, 'session_ended')).toMatchObject({ kind: 'tcp', bytes_in: 5, bytes_out: 5 });
    child.kill('SIGINT');
    expect((await ended).code).toBe(0);

    const far = await forward([id, `0:${ECHO}`], { SANDKEEP_URL: front.url });
    const socket = connectTo(far.ports[0]!);
    socket.end('far');
    expect(await text(socket)).toBe('far');
    far.child.kill('SIGINT');
    expect((await far.ended).code).toBe(0);
  });

  test('says what is wrong, and what to do', async () => {
    const faultOf = async (args: string[], more: Record<string, string> = {}) => {
      const { code, err } = await run(['port-forward', ...args], { env: { ...env, ...more } });
      return `${code} ${err}`;
    };
    expect(await faultOf(['nothing', '0:80'])).toMatch(/^1 sandkeep: .*not found/);
    expect(await faultOf(['box', '80:0'])).toMatch(/It must be a port, or two with a colon/);
    expect(await faultOf(['box', '0:80'], { SANDKEEP_API_KEY: '' })).toMatch(/set SANDKEEP_API_KEY/);
    expect(await faultOf(['box', '0:80'], { SANDKEEP_API_KEY: 'skp_wrong' })).toMatch(/^1 sandkeep: .*key/);
    expect(await faultOf(['box', '0:80'], { SANDKEEP_URL: 'http://127.0.0.1:9' })).toMatch(/cannot reach/);
    const taken = createServer();
    await once(taken.listen(0, '127.0.0.1'), 'listening');
    const { port } = taken.address() as AddressInfo;
    expect(await faultOf(['box', `${port}:80`])).toMatch(/of this machine is taken: choose another one/);
    taken.close();

    const { child, ended, ports } = await forward(['box', `0:${NOBODY}`]);
    const socket = connectTo(ports[0]!);
    await closeOf(socket);
    child.kill('SIGINT');
    expect((await ended).err).toContain(`nothing listens on port ${NOBODY} of the sandbox`);

    const stopped = await inside.start('stopped');
    await inside.client.post(`/v1/sandboxes/${stopped}/stop`, {});
    expect(await faultOf(['stopped', '0:80'])).toMatch(/start it first/);
  });

  test('ends connections when the key is revoked', async () => {
    const { body: made } = await inside.client.post('/v1/keys', {
      name: 'short',
      scopes: ['sandboxes:exec'],
    });
    const { child, ended, ports } = await forward(['box', `0:${ECHO}`], { SANDKEEP_API_KEY: made.key });
    const socket = connectTo(ports[0]!);
    socket.write('x');
    await once(socket, 'data');
    const closed = closeOf(socket);
    await inside.client.delete(`/v1/keys/${made.id}`);
    await closed;
    child.kill('SIGINT');
    expect((await ended).code).toBe(0);
  });
});
