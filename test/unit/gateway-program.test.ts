import { spawn, type ChildProcess } from 'node:child_process';
import { createSocket, type Socket as UdpSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer, Server, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import { afterEach, expect, it } from 'vitest';
import { readMessages } from '../../src/gateway/json-lines.js';
import { LISTENERS, type FromGateway } from '../../src/gateway/protocol.js';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { sleep } from '../../src/lib/sleep.js';
import { outcomeOf, SANDBOX, settingsOf } from '../support/gateway-front.js';

const PROGRAM = join(PACKAGE_ROOT, 'dist', 'program', 'gateway.cjs');

let child: ChildProcess | undefined;
afterEach(() => void child?.kill('SIGKILL'));

/** Starts the program as `launch` does: with its listeners as descriptors. */
async function start(...limit: string[]) {
  const listeners: (UdpSocket | Server)[] = [];
  for (const name of LISTENERS) {
    const socket = name.endsWith('udp') ? createSocket('udp4') : createServer();
    if ('bind' in socket) socket.bind(0, '127.0.0.1');
    else socket.listen(0, '127.0.0.1');
    await once(socket, 'listening');
    listeners.push(socket);
  }
  const [command, ...args] = [...limit, process.execPath, PROGRAM];
  const program = spawn(command, args, {
    stdio: ['pipe', 'pipe', 'pipe', ...listeners.map(descriptorOf)],
  });
  child = program;
  const messages: FromGateway[] = [];
  readMessages<FromGateway>(program.stdout!, 1_000_000, {
    receive: (message) => messages.push(message),
    fail: () => program.kill(),
  });
  await expect.poll(() => messages).toEqual([{ type: 'ready' }]);
  const [dns, connections] = [listeners[1], listeners[4]].map(
    (server) => ((server as Server).address() as AddressInfo).port,
  );
  // Otherwise this process would accept connections too.
  for (const socket of listeners) socket.close();
  const serve = () => program.stdin!.write('{"type":"serve"}\n');
  return { program, messages, serve, dns: dns!, port: connections! };
}

/** Node has no public way to it. */
function descriptorOf(socket: UdpSocket | Server): number {
  if (socket instanceof Server) return (socket as unknown as Record<'_handle', { fd: number }>)['_handle'].fd;
  const state = Object.getOwnPropertySymbols(socket).find((symbol) =>
    String(symbol).includes('state symbol'),
  );
  return (socket as never as Record<symbol, { handle: { fd: number } }>)[state!]!.handle.fd;
}

it('starts with inherited listeners, and ends with its service', async () => {
  const { program } = await start();
  program.stdin!.write(`${JSON.stringify({ type: 'sandbox', sandbox: settingsOf({}) })}\n`);
  program.stdin!.write('{"type":"forget","id":"sandbox"}\n');
  program.stdin!.end();
  expect(await once(program, 'exit')).toEqual([0, null]);
});

it('ends at a broken message, and says why', async () => {
  const { program } = await start();
  let errors = '';
  program.stderr!.on('data', (chunk: Buffer) => (errors += chunk.toString()));
  program.stdin!.write('{broken\n');
  expect(await once(program, 'exit')).toEqual([1, null]);
  expect(errors).toBe('gateway: the service sent a wrong message: a line is no JSON\n');
});

it('lets connections wait until the service has described its sandboxes', async () => {
  const { program, port, serve } = await start();
  const policy = { default_egress: 'allow' } as const;
  const early = connect({ host: '127.0.0.1', port, localAddress: SANDBOX });
  let isOver = false;
  const outcome = outcomeOf(early).finally(() => (isOver = true));
  await once(early, 'connect');
  program.stdin!.write(`${JSON.stringify({ type: 'sandbox', sandbox: settingsOf(policy) })}\n`);
  await sleep(200);
  expect(isOver).toBe(false);
  serve();
  expect(await outcome).toEqual({ text: '', end: 'reset' });
});

it('resets connections of strangers, and those to itself', async () => {
  const { program, port, serve } = await start();
  serve();
  const policy = { default_egress: 'allow' } as const;
  program.stdin!.write(`${JSON.stringify({ type: 'sandbox', sandbox: settingsOf(policy) })}\n`);
  for (const localAddress of ['127.0.0.9', SANDBOX]) {
    const socket = connect({ host: '127.0.0.1', port, localAddress });
    expect(await outcomeOf(socket)).toEqual({ text: '', end: 'reset' });
  }
});

it('lives on when it has no descriptor left', async () => {
  const { program, serve, dns, port } = await start('prlimit', '--nofile=40');
  serve();
  const open = (position: number) =>
    connect({ host: '127.0.0.1', port: dns, localAddress: `127.0.1.${position}` }).on('error', () => {});
  const idle = Array.from({ length: 60 }, (_, position) => open(position + 1));
  // `once` would reject with the reset of a surplus connection.
  const settled = (socket: Socket, ...events: string[]) =>
    new Promise<void>((resolve) => events.forEach((event) => void socket.once(event, () => resolve())));
  await Promise.all(idle.map((socket) => settled(socket, 'connect', 'close')));
  const refused = connect({ host: '127.0.0.1', port }).on('error', () => {});
  for (const socket of idle) socket.destroy();
  if (!refused.closed) await settled(refused, 'close');
  // It accepts again, and refuses the stranger: at once, or when it has descriptors.
  expect(['reset', 'end']).toContain((await outcomeOf(connect({ host: '127.0.0.1', port }))).end);
  expect(program.exitCode).toBeNull();
});
