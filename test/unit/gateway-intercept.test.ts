import { once } from 'node:events';
import { createServer, type ServerOptions } from 'node:https';
import type { Socket } from 'node:net';
import { Readable } from 'node:stream';
import {
  type Agent,
  request as sendRequest,
  type IncomingMessage,
  type RequestOptions,
  type ServerResponse,
} from 'node:http';
import { buffer } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';
import { createServer as createTlsServer, type TLSSocket } from 'node:tls';
import { expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { makeAuthority } from '../../src/gateway/intercept/certificate.js';
import { REQUEST_MS, SharedWork } from '../../src/gateway/intercept/shared-work.js';
import { UpstreamAgent } from '../../src/gateway/intercept/upstream-agent.js';
import { identity, listen, openGate, NAME, SECRET } from '../support/interceptor.js';

const agents = new WeakMap<TLSSocket, Agent>();

/** It sends all requests over this connection. */
function agentOf(socket: TLSSocket): Agent {
  const agent = agents.get(socket) ?? new UpstreamAgent(socket);
  agents.set(socket, agent);
  return agent;
}

async function ask(socket: TLSSocket, options: RequestOptions = {}, body?: string | Buffer) {
  const request = sendRequest({
    agent: agentOf(socket),
    headers: { host: NAME },
    ...options,
  });
  request.end(body);
  const response = await new Promise<IncomingMessage>((resolve, reject) =>
    request.once('response', resolve).once('error', reject),
  );
  return { response, status: response.statusCode, text: (await buffer(response)).toString() };
}

/** A server of HTTP/1.1. */
function serve(answer: (request: IncomingMessage, response: ServerResponse) => Promise<void> | void) {
  return createServer(
    { ...identity(), allowHalfOpen: true } as ServerOptions,
    (request, response) => void answer(request, response),
  );
}

it('forwards HTTP/1.1, with its body and its fields as they came', async () => {
  const server = serve(async (request, response) => {
    const body = await buffer(request);
    response.writeHead(201, 'Made', [
      ['Set-Cookie', 'a=1'],
      ['Set-Cookie', 'b=2'],
      ['X-Seen', `${request.method} ${request.url} ${body.length}`],
      ['X-Fields', JSON.stringify(request.rawHeaders)],
    ]);
    response.end(body);
  });
  const gate = await openGate({ port: await listen(server) });
  const socket = await gate.tls();
  const { response, status, text } = await ask(
    socket,
    { method: 'POST', path: '/a?b=c', headers: { host: NAME, 'X-Case': 'Kept', 'x-two': ['1', '2'] } },
    'hello',
  );
  expect({ status, text, message: response.statusMessage }).toEqual({
    status: 201,
    text: 'hello',
    message: 'Made',
  });
  expect(response.headers['set-cookie']).toEqual(['a=1', 'b=2']);
  expect(response.headers['x-seen']).toBe('POST /a?b=c 5');
  const fields = JSON.parse(response.headers['x-fields'] as string) as string[];
  expect(fields).toEqual([
    'host',
    NAME,
    'X-Case',
    'Kept',
    'x-two',
    '1',
    'x-two',
    '2',
    'Content-Length',
    '5',
    'Connection',
    'keep-alive',
  ]);
  const again = await ask(socket, { method: 'GET', path: '/again' });
  expect(again.response.headers['x-seen']).toBe('GET /again 0');
  expect(gate.denials).toEqual([]);
});

/** Sends bytes as they are, and reads until the gateway ends the connection. */
async function speak(socket: Socket | TLSSocket, text: string): Promise<string> {
  socket.write(text, 'latin1');
  return (await buffer(socket)).toString('latin1');
}

const HEAD = `POST / HTTP/1.1\r\nHost: ${NAME}\r\n`;

it.each([
  ['two lengths', `${HEAD}Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd`, 400],
  ['a length and chunks', `${HEAD}Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, 400],
  ['an unknown coding', `${HEAD}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n`, 400],
  ['a space before the colon', `${HEAD}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n`, 400],
  ['a bare line feed in chunks', `${HEAD}Transfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n`, 400],
  ['a null in a field', `${HEAD}X-A: a\0b\r\n\r\n`, 400],
  ['no host', 'GET / HTTP/1.1\r\nConnection: close\r\n\r\n', 400],
  ['two hosts', `GET / HTTP/1.1\r\nHost: ${NAME}\r\nHost: ${NAME}\r\nConnection: close\r\n\r\n`, 400],
  ['another host', 'GET / HTTP/1.1\r\nHost: other.example\r\nConnection: close\r\n\r\n', 403],
  [
    'another host in its URL',
    `GET https://other.example/ HTTP/1.1\r\nHost: ${NAME}\r\nConnection: close\r\n\r\n`,
    400,
  ],
  ['no path', `GET x HTTP/1.1\r\nHost: ${NAME}\r\nConnection: close\r\n\r\n`, 400],
  ['a tunnel', `CONNECT other.example:443 HTTP/1.1\r\nHost: ${NAME}\r\n\r\n`, 403],
])('refuses a request with %s, which reaches no server', async (_, text, status) => {
  let seen = 0;
  const gate = await openGate({
    port: await listen(serve((__, response) => void ((seen += 1), response.end()))),
  });
  const answer = await speak(await gate.tls(), text);
  expect(answer).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
  expect(JSON.parse(answer.split('\r\n\r\n')[1]!)).toMatchObject({
    code: expect.any(String),
    message: expect.any(String),
  });
  expect(seen).toBe(0);
  expect(gate.denials.length).toBe(status === 403 || answer.includes('network_policy_denied') ? 1 : 0);
});

it('joins a folded field, and drops the fields of the connection', async () => {
  const seen: string[][] = [];
  const server = serve((request, response) => void (seen.push(request.rawHeaders), response.end()));
  const gate = await openGate({ port: await listen(server) });
  const fields =
    'X-Folded: a\r\n b\r\nX-Gone: 1\r\nConnection: x-gone, close, host\r\nKeep-Alive: 5\r\nTE: trailers\r\n';
  const answer = await speak(await gate.tls(), `GET / HTTP/1.1\r\nHost: ${NAME}\r\n${fields}\r\n`);
  if (answer.startsWith('HTTP/1.1 200')) {
    expect(seen[0]).toEqual([
      'Host',
      NAME,
      'X-Folded',
      expect.stringMatching(/^a *b$/),
      'TE',
      'trailers',
      'Connection',
      'keep-alive',
    ]);
  } else expect(answer).toMatch(/^HTTP\/1.1 400 /);
});

it('answers pipelined requests in their order', async () => {
  const server = serve(
    (request, response) =>
      void setTimeout(request.url === '/a' ? 50 : 0).then(() => response.end(request.url)),
  );
  const gate = await openGate({ port: await listen(server) });
  const get = (path: string, more = '') => `GET ${path} HTTP/1.1\r\nHost: ${NAME}\r\n${more}\r\n`;
  const answer = await speak(await gate.tls(), get('/a') + get('/b') + get('/c', 'Connection: close\r\n'));
  expect(answer.match(/\/[abc](?=HTTP|$)/g)).toEqual(['/a', '/b', '/c']);
});

it('passes a WebSocket, an upgrade that a server refuses, and one that it does not know', async () => {
  const server = serve(
    (request, response) => void response.end(`plain ${request.headers.upgrade ?? 'none'}`),
  );
  const sockets = new WebSocketServer({ noServer: true });
  server.on('upgrade', (request, socket, head) => {
    if (request.url === '/no') return void socket.end('HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno');
    sockets.handleUpgrade(request, socket, head, (web) =>
      web.on('message', (data, isBinary) => web.send(data, { binary: isBinary })),
    );
  });
  const gate = await openGate({ port: await listen(server) });
  const tls = await gate.tls();
  const web = new WebSocket(`wss://${NAME}/yes`, { createConnection: () => tls, perMessageDeflate: false });
  web.once('open', () => web.send('hello'));
  const [message] = (await once(web, 'message')) as [Buffer];
  expect(message.toString()).toBe('hello');
  web.close();
  await once(web, 'close');
  const upgrade = (path: string, to: string) =>
    `GET ${path} HTTP/1.1\r\nHost: ${NAME}\r\nConnection: Upgrade, close\r\nUpgrade: ${to}\r\n\r\n`;
  expect(await speak(await gate.tls(), upgrade('/no', 'websocket'))).toMatch(
    /^HTTP\/1.1 403 No\r\n[^]*\r\n\r\nno$/,
  );
  expect(await speak(await gate.tls(), upgrade('/', 'h2c'))).toMatch(/^HTTP\/1.1 200 OK\r\n[^]*plain none$/);
});

it('passes events as they come', async () => {
  let next = () => {};
  const server = serve((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
    next = () => void response.write('data: x\n\n');
  });
  const gate = await openGate({ port: await listen(server) });
  const request = sendRequest({ agent: agentOf(await gate.tls()), headers: { host: NAME } });
  request.end();
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  for (let count = 0; count < 3; count += 1) {
    next();
    expect(String((await once(response, 'data'))[0])).toBe('data: x\n\n');
  }
});

it('passes 100 Continue and early hints, and lets a server refuse a body', async () => {
  const server = serve(() => {});
  server.on('checkContinue', (request: IncomingMessage, response: ServerResponse) => {
    if (request.url === '/no') return void response.writeHead(413, { connection: 'close' }).end('too large');
    response.writeContinue();
    response.writeEarlyHints({ link: '</a.css>; rel=preload' });
    void buffer(request).then((body) => response.end(String(body.length)));
  });
  const gate = await openGate({ port: await listen(server) });
  const headers = { host: NAME, expect: '100-continue', 'content-length': 5 };
  const request = sendRequest({ agent: agentOf(await gate.tls()), method: 'PUT', headers });
  const informed: number[] = [];
  request.on('information', ({ statusCode }) => informed.push(statusCode));
  request.flushHeaders();
  await once(request, 'continue');
  request.end('hello');
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  expect([String(await buffer(response)), informed]).toEqual(['5', [100, 103]]);
  const refused = sendRequest({ agent: agentOf(await gate.tls()), method: 'PUT', path: '/no', headers });
  refused.flushHeaders();
  refused.on('error', () => {});
  const [no] = (await once(refused, 'response')) as [IncomingMessage];
  expect([no.statusCode, String(await buffer(no))]).toEqual([413, 'too large']);
});

it('keeps answers without a body, trailers, and answers until the end of the connection', async () => {
  const server = serve((request, response) => {
    const status = Number(request.url!.slice(1));
    if (status === 1) {
      response.writeHead(200, { trailer: 'x-sum' });
      response.write('body');
      response.addTrailers({ 'x-sum': '7' });
      return void response.end();
    }
    if (status === 2) return void response.socket!.end('HTTP/1.1 200 OK\r\n\r\nuntil the end');
    response.writeHead(status, { 'x-kept': '1', 'content-length': request.method === 'HEAD' ? 1_000 : 0 });
    response.end();
  });
  const gate = await openGate({ port: await listen(server) });
  const socket = await gate.tls();
  for (const [method, status, length] of [
    ['HEAD', 200, '1000'],
    ['GET', 304, '0'],
    ['GET', 204, undefined],
  ] as const) {
    const { response, text } = await ask(socket, { method, path: `/${status}` });
    expect([response.statusCode, response.headers['x-kept'], text]).toEqual([status, '1', '']);
    if (length !== undefined) expect(response.headers['content-length']).toBe(length);
  }
  const { response } = await ask(socket, { path: '/1' });
  expect(response.trailers).toEqual({ 'x-sum': '7' });
  expect((await ask(socket, { path: '/2' })).text).toBe('until the end');
  await once(socket, 'close');
});

it('tells a client of an answer that breaks off, and a server of a client that is gone', async () => {
  const arrived: Promise<unknown>[] = [];
  const server = serve((request, response) => {
    if (request.url === '/wait') arrived.push(once(response, 'close'));
    else if (request.url === '/reset') request.socket.destroy();
    else response.writeHead(200, { 'content-length': 10 }).write('part', () => request.socket.destroy());
  });
  const gate = await openGate({ port: await listen(server) });
  await expect(gate.tls().then((socket) => ask(socket, { path: '/part' }))).rejects.toThrow('aborted');
  await expect(gate.tls().then((socket) => ask(socket, { path: '/reset' }))).rejects.toThrow(
    /hang up|ECONNRESET/,
  );
  const socket = await gate.tls();
  socket.write(`GET /wait HTTP/1.1\r\nHost: ${NAME}\r\n\r\n`);
  while (arrived.length === 0) await setTimeout(5);
  socket.destroy();
  await arrived[0];
});

it('answers a client of HTTP/1.0, with the length or until the end', async () => {
  const server = serve((request, response) => void response.end(`${request.httpVersion} ${request.url}`));
  const gate = await openGate({ port: await listen(server) });
  const answer = await speak(await gate.tls(), `GET /old HTTP/1.0\r\nHost: ${NAME}\r\n\r\n`);
  expect(answer).toMatch(/^HTTP\/1.1 200 OK\r\n(?![^]*chunked)[^]*\r\n\r\n1.1 \/old$/i);
});

it('answers a client that has ended its side', async () => {
  const server = serve((_, response) => void setTimeout(50).then(() => response.end('late')));
  // Most servers take it for a client that is gone.
  Object.assign(server, { httpAllowHalfOpen: true });
  const gate = await openGate({ port: await listen(server) });
  const socket = await gate.tls();
  socket.allowHalfOpen = true;
  socket.end(`GET / HTTP/1.1\r\nHost: ${NAME}\r\n\r\n`);
  expect((await buffer(socket)).toString()).toMatch(/late$/);
});

it('moves large bodies both ways in little memory, at the speed of the slower side', async () => {
  const MIB = 1_048_576;
  const server = serve((request, response) => {
    response.writeHead(200, { 'content-length': request.headers['content-length'] });
    request.pipe(response);
  });
  const gate = await openGate({ port: await listen(server) });
  const size = 192 * MIB;
  const request = sendRequest({
    agent: agentOf(await gate.tls()),
    method: 'POST',
    headers: { host: NAME, 'content-length': size },
  });
  const chunk = Buffer.alloc(MIB);
  const before = process.memoryUsage().rss;
  let most = before;
  Readable.from(
    (function* () {
      for (let sent = 0; sent < size; sent += MIB) yield chunk;
    })(),
  ).pipe(request);
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  await setTimeout(200);
  let received = 0;
  for await (const part of response) {
    received += (part as Buffer).length;
    most = Math.max(most, process.memoryUsage().rss);
  }
  expect(received).toBe(size);
  expect(most - before).toBeLessThan(100 * MIB);
  expect(gate.flow.sent + gate.flow.received).toBeGreaterThanOrEqual(0);
});

it('counts the bytes of a connection, and its end', async () => {
  const gate = await openGate({
    port: await listen(serve((_, response) => void response.end('x'.repeat(10_000)))),
  });
  const socket = await gate.tls();
  await ask(socket);
  socket.destroy();
  while (gate.flow.ends === 0) await setTimeout(5);
  expect(gate.flow.ends).toBe(1);
  expect(gate.flow.sent).toBeGreaterThan(100);
  expect(gate.flow.received).toBeGreaterThan(10_000);
});

it('says why a server with a wrong certificate is not reached, unless the sandbox does not want to know', async () => {
  const server = createServer(
    identity(NAME, makeAuthority('of nobody')),
    (_, response) => void response.end('hello'),
  );
  const port = await listen(server);
  const refused = await ask(await (await openGate({ port })).tls());
  expect(refused.status).toBe(502);
  expect(JSON.parse(refused.text)).toMatchObject({
    code: 'upstream_failed',
    message: expect.stringContaining(NAME),
  });
  for (const tls of [
    { verifyUpstream: false },
    { scopedVerify: [{ pattern: '*.example.com', verify: false }] },
  ])
    expect((await ask(await (await openGate({ port, tls })).tls())).text).toBe('hello');
  const other = createServer(identity('other.example'), (_, response) => void response.end());
  expect((await ask(await (await openGate({ port: await listen(other) })).tls())).status).toBe(502);
  await expect(openGate({ port: 1 }).then((gate) => gate.tls())).rejects.toThrow(/ECONNRESET|disconnected/);
});

it('passes other protocols inside TLS, and blocks them where a secret is', async () => {
  const echo = createTlsServer(identity(), (socket) => void socket.pipe(socket));
  const first = createTlsServer(identity(), (socket) => void socket.end('220 ready\r\n'));
  const [echoPort, firstPort] = [await listen(echo), await listen(first)];
  const socket = await (await openGate({ port: echoPort })).tls();
  socket.write('EHLO a\r\n');
  expect(String((await once(socket, 'data'))[0])).toBe('EHLO a\r\n');
  socket.end();
  await once(socket, 'close');
  expect(String(await buffer(await (await openGate({ port: firstPort })).tls()))).toBe('220 ready\r\n');
  const gate = await openGate({ port: echoPort, secrets: [SECRET] });
  await expect(gate.tls().then((each) => speak(each, 'EHLO a\r\n'))).rejects.toThrow('ECONNRESET');
  expect(gate.denials).toMatchObject([{ kind: 'connection', name: NAME }]);
});

it('resumes the TLS sessions of clients', async () => {
  const gate = await openGate({ port: await listen(serve((_, response) => void response.end('x'))) });
  const socket = await gate.tls();
  const session = once(socket, 'session') as Promise<[Buffer]>;
  await ask(socket);
  const again = await gate.tls(undefined, (await session)[0]);
  expect(again.isSessionReused()).toBe(true);
  expect((await ask(again)).text).toBe('x');
});

it('lets an organization that floods wait, while another one is served', async () => {
  const work = new SharedWork();
  let waits = 0;
  for (let count = 0; count < 2_000; count += 1) {
    if (count % 10 === 0) expect(work.charge('quiet', REQUEST_MS)).toBeUndefined();
    waits += work.charge('greedy', REQUEST_MS) ? 1 : 0;
  }
  expect(waits).toBeGreaterThan(500);
  const releases = Array.from({ length: 64 }, () => work.takeBody('greedy', 1024 ** 2));
  expect([work.takeBody('greedy', 1), typeof work.takeBody('quiet', 1024 ** 2)]).toEqual([
    undefined,
    'function',
  ]);
  for (const release of releases) release?.();
  expect(work.takeBody('greedy', 1)).toBeDefined();
});
