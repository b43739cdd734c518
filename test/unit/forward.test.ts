import Fastify, { type FastifyReply } from 'fastify';
import { once } from 'node:events';
import {
  createServer,
  request as httpRequest,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
} from 'node:http';
import { connect, type AddressInfo, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { afterEach, expect, test } from 'vitest';
import { forward } from '../../src/http/forward.js';
import { listen } from '../../src/http/listen.js';
import type { App } from '../../src/http/route.js';
import { routeUpgrades } from '../../src/http/upgrade.js';
import { until } from '../support/polling.js';

const MIB = 1024 * 1024;
const closing: (() => unknown)[] = [];
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close();
});

/** A process that forwards everything to `handler`, which is in another one. */
async function start(
  handler: RequestListener,
  onUpgrade: (request: IncomingMessage, socket: Socket, head: Buffer) => void = () => undefined,
) {
  const target = createServer(handler);
  const sockets = new Set<Socket>();
  target.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('close', () => sockets.delete(socket)).on('error', () => undefined);
  });
  target.on('upgrade', onUpgrade);
  await once(target.listen(0, '127.0.0.1'), 'listening');
  closing.push(() => (target.closeAllConnections(), target.close()));
  const stopping = new AbortController();
  const app = Fastify() as unknown as App;
  const url = `http://127.0.0.1:${(target.address() as AddressInfo).port}`;
  app.addHook('onRequest', async (request, reply): Promise<FastifyReply> => {
    void reply.header('x-front', '1');
    await forward(request, reply, { url, headers: { 'x-added': '1' }, stopping: stopping.signal });
    return reply;
  });
  app.all('/*', () => 'not forwarded');
  routeUpgrades(app, { channelPingMs: 20_000 });
  const front = await listen(app, { host: '127.0.0.1', port: 0 });
  closing.push(() => (app.server.closeAllConnections(), app.close()));
  return { front, port: Number(new URL(front).port), target, sockets, stopping };
}

test('forwards method, path, query, body and headers, except those of one connection', async () => {
  const { front } = await start((request, response) => {
    void request.toArray().then((parts) => echo(request, response, Buffer.concat(parts as Buffer[])));
  });
  const echo: (...all: [IncomingMessage, ServerResponse, Buffer]) => void = (request, response, body) => {
    response.writeHead(207, { 'x-target': '1', 'keep-alive': 'timeout=99', 'set-cookie': ['a=1', 'b=2'] });
    const { method, url, headers } = request;
    response.end(JSON.stringify({ method, url, headers, body: body.toString() }));
  };
  const request = httpRequest(`${front}/a%2Fb?c=d`, {
    method: 'DELETE',
    headers: {
      authorization: 'Bearer k',
      'transfer-encoding': 'chunked',
      te: 'trailers',
      'x-mine': '1',
      connection: 'keep-alive, x-hop',
      'x-hop': '1',
      'proxy-authorization': 'secret',
    },
  });
  request.end('hello');
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  let text = '';
  for await (const part of answer) text += String(part);
  const seen = JSON.parse(text);
  expect(seen).toMatchObject({ method: 'DELETE', url: '/a%2Fb?c=d', body: 'hello' });
  expect(seen.headers).toMatchObject({
    authorization: 'Bearer k',
    'x-mine': '1',
    'x-added': '1',
    host: new URL(front).host,
  });
  for (const name of ['x-hop', 'te', 'proxy-authorization']) expect(seen.headers).not.toHaveProperty(name);
  expect(answer.statusCode).toBe(207);
  expect(answer.headers).toMatchObject({ 'x-target': '1', 'x-front': '1', 'set-cookie': ['a=1', 'b=2'] });
  expect(answer.headers['keep-alive']).not.toBe('timeout=99');
});

test('forwards one request as one, also when the client calls its length a header of the connection', async () => {
  const inner = 'DELETE /second HTTP/1.1\r\nhost: a\r\n\r\n';
  for (const method of ['GET', 'DELETE', 'POST']) {
    const seen: string[] = [];
    const { port } = await start((request, response) => {
      seen.push(request.url!);
      void request.toArray().then((parts) => response.end(Buffer.concat(parts as Buffer[])));
    });
    const client = connect(port, '127.0.0.1');
    const lines = ['host: a', 'connection: close, content-length', `content-length: ${inner.length}`];
    client.write(`${method} /first HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n${inner}`);
    const answer = Buffer.concat((await client.toArray()) as Buffer[]).toString();
    expect(seen).toEqual(['/first']);
    expect(answer).toContain(inner);
  }
});

test('reads a body at the pace of the other process, and an answer at the pace of the client', async () => {
  let taken = 0;
  let resume: (() => void) | undefined;
  let written = 0;
  const { front } = await start((request, response) => {
    if (request.method === 'POST') {
      request.on('data', (chunk: Buffer) => (taken += chunk.length)).pause();
      resume = () => request.resume();
      request.on('end', () => response.end(String(taken)));
      return;
    }
    const more = () => {
      while (written < 64 * MIB) {
        written += MIB;
        if (!response.write(Buffer.alloc(MIB))) return;
      }
      response.end();
    };
    response.on('drain', more);
    more();
  });
  const upload = httpRequest(front, { method: 'POST', agent: false });
  let sent = 0;
  const push = () => {
    while (sent < 64 * MIB) {
      sent += MIB;
      if (!upload.write(Buffer.alloc(MIB))) return;
    }
    upload.end();
  };
  upload.on('drain', push);
  push();
  await until(
    () => Promise.resolve(resume),
    (begun) => begun !== undefined,
  );
  await delay(1_000);
  expect(sent).toBeLessThan(32 * MIB);
  resume!();
  const [counted] = (await once(upload, 'response')) as [IncomingMessage];
  expect(String((await counted.toArray())[0])).toBe(String(64 * MIB));

  const download = httpRequest(front, { agent: false }).end();
  const [answer] = (await once(download, 'response')) as [IncomingMessage];
  await delay(1_000);
  expect(written).toBeLessThan(32 * MIB);
  let received = 0;
  for await (const chunk of answer) received += (chunk as Buffer).length;
  expect(received).toBe(64 * MIB);
});

test('ends the request of a client that leaves, before the answer and during it', async () => {
  for (const begins of [false, true]) {
    const { front, sockets } = await start((_request, response) => {
      if (begins) response.write('begun');
    });
    const request = httpRequest(front, { agent: false }).end();
    request.on('error', () => undefined);
    if (begins) await once(request, 'response');
    else {
      await until(
        async () => sockets.size,
        (count) => count === 1,
      );
    }
    request.destroy();
    await until(
      async () => sockets.size,
      (count) => count === 0,
    );
    expect(sockets.size).toBe(0);
  }
});

test('passes the early refusal of a large body on', async () => {
  const { front } = await start((_request, response) => {
    response.writeHead(413).end('too large');
  });
  const response = await fetch(front, { method: 'POST', body: Buffer.alloc(8 * MIB) });
  expect([response.status, await response.text()]).toEqual([413, 'too large']);
});

test('joins both sides of an upgrade, with the bytes that came with it', async () => {
  const { port, sockets } = await start(
    () => undefined,
    (request, socket, head) => {
      expect(request.headers).toMatchObject({ upgrade: 'websocket', connection: 'Upgrade' });
      socket.write(
        'HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nfirst ',
      );
      socket.write(head);
      socket.pipe(socket);
    },
  );
  for (const leave of ['end', 'destroy'] as const) {
    const client = connect(port, '127.0.0.1');
    let text = '';
    client.on('data', (chunk) => (text += String(chunk)));
    client.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\nearly ');
    await until(
      async () => text,
      (all) => all.endsWith('first early '),
    );
    client.write('late');
    await until(
      async () => text,
      (all) => all.endsWith('first early late'),
    );
    expect(text).toMatch(/^HTTP\/1\.1 101 /);
    client[leave]();
    await until(
      async () => sockets.size,
      (count) => count === 0,
    );
  }
});

test('ends both sides of an upgrade when the other process ends or this one stops', async () => {
  for (const how of ['target', 'stop'] as const) {
    const { port, sockets, stopping } = await start(
      () => undefined,
      (_request, socket) => {
        socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
        socket.resume().on('end', () => socket.end());
      },
    );
    const client = connect(port, '127.0.0.1');
    client.on('error', () => undefined);
    client.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n');
    await once(client, 'data');
    const closed = once(client, 'close');
    if (how === 'target') for (const socket of sockets) socket.resetAndDestroy();
    else stopping.abort();
    await closed;
    await until(
      async () => sockets.size,
      (count) => count === 0,
    );
    expect(sockets.size).toBe(0);
  }
});

test('passes the refusal of an upgrade on, and closes the connection', async () => {
  const { port } = await start(
    () => undefined,
    (_request, socket) => socket.end('HTTP/1.1 409 Conflict\r\ncontent-length: 2\r\n\r\nno'),
  );
  const client = connect(port, '127.0.0.1');
  client.write('GET / HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n');
  const parts = await client.toArray();
  expect(Buffer.concat(parts as Buffer[]).toString()).toMatch(/^HTTP\/1\.1 409 [^]*\r\n\r\nno$/);
});
