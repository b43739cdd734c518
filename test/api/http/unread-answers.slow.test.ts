import type { FastifyReply, FastifyRequest } from 'fastify';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { connect as connectTls } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { listen, NO_HOST } from '../../../src/http/listen.js';
import { makeServer } from '../../../src/http/server.js';
import { watchReader } from '../../../src/http/slow-reader.js';
import { Certificate } from '../../../src/http/tls/certificate.js';
import { UNREAD, type UnreadLimits } from '../../../src/http/unread-answers.js';
import { makeLog } from '../../../src/lib/log.js';
import { Authority, pairFiles } from '../../support/certificates.js';
import { until } from '../../support/polling.js';

const MIB = 1024 ** 2;
const RECORD = 16 * 1024;
/** More than the buffers of a connection take. */
const LONG = 'x'.repeat(32 * MIB);
const SILENT = { info: () => undefined, warn: () => undefined, error: () => undefined };
const SETTINGS = {
  bodyTimeoutMs: 60_000,
  trustedProxies: [],
  hstsDays: 0,
  connections: { total: 100, each: 100 },
};

const WAYS = ['http', 'https', 'unix'] as const;
type Way = (typeof WAYS)[number];

async function serve(way: Way, limits: Partial<UnreadLimits>) {
  const certificate =
    way === 'https' ? new Certificate(pairFiles(new Authority().issue()), SILENT) : undefined;
  const log = makeLog('silent', { write: () => undefined });
  const unread = { ...UNREAD, sweepMs: 50, ...limits };
  const app = makeServer(log, SETTINGS, { certificate, unread });
  app.get('/long', () => LONG);
  app.get('/watched', (request: FastifyRequest, reply: FastifyReply) => {
    watchReader(request, reply, { stallMs: 300, limitMs: 60_000 });
    return reply.send(LONG);
  });
  app.get('/short', () => 'short');
  const directory = mkdtempSync(join(tmpdir(), 'sandkeep-unread-'));
  const unix = { path: join(directory, 'socket'), mode: 0o600 };
  const url = await listen(app, {
    ...(way === 'unix' ? { host: NO_HOST, port: 0, unix } : { host: '127.0.0.1', port: 0 }),
    isTls: way === 'https',
  });
  onTestFinished(async () => {
    app.server.closeAllConnections();
    await app.close();
    rmSync(directory, { recursive: true });
  });
  function open(path: string): Socket {
    const port = way === 'unix' ? 0 : Number(new URL(url).port);
    const socket =
      way === 'https'
        ? connectTls({ host: '127.0.0.1', port, rejectUnauthorized: false })
        : way === 'unix'
          ? connect(unix.path)
          : connect(port, '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    socket.on('error', () => undefined);
    socket.pause();
    socket.write(`GET ${path} HTTP/1.1\r\nHost: a\r\n\r\n`);
    return socket;
  }
  let accepted = 0;
  app.server.on('connection', () => (accepted += 1));
  /** Polls may miss a connection that ends soon. */
  const untilAccepted = (count: number) =>
    until(
      () => Promise.resolve(accepted),
      (all) => all >= count,
    );
  const connections = () => new Promise<number>((resolve) => app.server.getConnections((_, n) => resolve(n)));
  async function ask(path: string): Promise<string> {
    const socket = open(path);
    socket.resume();
    const answer = await new Promise<string>((resolve) =>
      socket.once('data', (data) => resolve(String(data))),
    );
    socket.destroy();
    return answer;
  }
  return { open, untilAccepted, connections, ask };
}

test.each(WAYS)('an answer that nobody reads ends with its connection, by %s', async (way) => {
  const { open, untilAccepted, connections, ask } = await serve(way, { stallMs: 300 });
  open('/long');
  await untilAccepted(1);
  await until(connections, (count) => count === 0);
  expect(await ask('/short')).toMatch(/^HTTP\/1\.1 200 /);
});

test.each(WAYS)('a report that nobody reads ends with its connection, by %s', async (way) => {
  const { open, untilAccepted, connections, ask } = await serve(way, { stallMs: 60_000 });
  open('/watched');
  await untilAccepted(1);
  await until(connections, (count) => count === 0);
  expect(await ask('/short')).toMatch(/^HTTP\/1\.1 200 /);
});

/** Reads to the end, and returns the length of the answer. A connection that was reset has a part of it. */
async function read(socket: Socket, slowly = false): Promise<number> {
  const begun = performance.now();
  let length = 0;
  socket.on('data', (bytes: Buffer) => {
    length += bytes.length;
    if (length >= LONG.length) socket.end();
    if (!slowly) return;
    socket.pause();
    // By the clock: a busy machine runs timers late.
    const dueMs = (length / RECORD) * 2 - (performance.now() - begun);
    setTimeout(() => socket.resume(), Math.max(0, dueMs));
  });
  const closed = once(socket, 'close');
  socket.resume();
  await closed;
  return length;
}

/**
 * The kernel takes more of an answer only when a third of its buffer is free. So the service sees steps of up to a
 * megabyte. The limit is eight times such a step at this speed, which a busy machine reaches, and less than the whole.
 */
const SLOW_STALL_MS = 2_500;

test.each(WAYS)('an answer that is read slowly arrives, by %s', async (way) => {
  const { open } = await serve(way, { stallMs: SLOW_STALL_MS });
  const begun = performance.now();
  expect(await read(open('/long'), true)).toBeGreaterThan(LONG.length);
  expect(performance.now() - begun).toBeGreaterThan(SLOW_STALL_MS);
});

test('a service that stands still cuts no client off', async () => {
  const { open, untilAccepted } = await serve('http', { stallMs: 2_000 });
  const socket = open('/long');
  await untilAccepted(1);
  // The socket has taken what it can.
  await pause(200);
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4_000);
  expect(await read(socket)).toBeGreaterThan(LONG.length);
});

test('the answer that stands longest ends first where an owner has too many bytes', async () => {
  const { open, untilAccepted, connections } = await serve('http', { each: 70 * MIB, fullStallMs: 200 });
  const first = open('/long');
  await untilAccepted(1);
  await pause(100);
  const second = open('/long');
  await pause(600);
  expect(await connections()).toBe(2);
  const third = open('/long');
  await untilAccepted(3);
  await until(connections, (count) => count === 2);
  const lengths = await Promise.all([first, second, third].map((socket) => read(socket)));
  expect(lengths.map((length) => length > LONG.length)).toEqual([false, true, true]);
});
