import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { connect, type AddressInfo } from 'node:net';
import { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { WebSocket, WebSocketServer } from 'ws';
import { NotRunningError } from '../../../src/sandboxes/ports/not-running.js';
import { PortRefusedError } from '../../../src/sandboxes/ports/guest-stream.js';
import type { PreviewWaker } from '../../../src/previews/types.js';
import { answerError } from '../../../src/previews/answer.js';
import { ApiError } from '../../../src/http/errors.js';
import { until as poll } from '../../support/polling.js';
import { ask, httpSandbox, startPreviews, type TestPreviews } from '../../support/previews.js';

const MIB = 1024 * 1024;
const until = (isSo: () => boolean) => poll(() => Promise.resolve(isSo()), Boolean);
const echo = httpSandboxOf((request) => ({
  method: request.method,
  url: request.url,
  headers: request.headers,
}));

function httpSandboxOf(answer: (request: IncomingMessage) => object) {
  return () =>
    httpSandbox((request, response) => {
      let text = '';
      request.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      request.on('end', () =>
        response.end(JSON.stringify({ ...answer(request), text, trailers: request.trailers })),
      );
    });
}

interface Echo {
  method: string;
  url: string;
  headers: Record<string, string>;
  text: string;
  trailers: Record<string, string>;
}

const echoOf = async (previews: TestPreviews, asked = {}) =>
  JSON.parse((await ask(previews, asked)).text) as Echo;

describe('a request', () => {
  it('reaches the server with its method, path, headers and body', async () => {
    const previews = await startPreviews(echo());
    const seen = await echoOf(previews, {
      method: 'PATCH',
      path: '/a/%2e%2e/b?c=d&e=%00',
      headers: { 'x-custom': 'ä', accept: ['a', 'b'] },
      body: 'text',
    });
    expect(seen).toMatchObject({ method: 'PATCH', url: '/a/%2e%2e/b?c=d&e=%00', text: 'text' });
    expect(seen.headers).toMatchObject({ accept: 'a, b', 'content-length': '4', host: previews.host });
  });

  it('has the headers of this proxy in place of those that the client has made up', async () => {
    const previews = await startPreviews(echo());
    const { headers } = await echoOf(previews, {
      headers: {
        'x-forwarded-for': '6.6.6.6',
        'x-forwarded-proto': 'https',
        'x-forwarded-server': 'evil',
        'x-real-ip': '6.6.6.6',
        X_Forwarded_For: '6.6.6.6',
        x_real_ip: '6.6.6.6',
        'x-custom_name': 'kept',
        forwarded: 'for=6.6.6.6',
        connection: 'x-secret, close',
        'x-secret': '1',
        'proxy-authorization': 'Basic x',
        te: 'gzip',
      },
    });
    expect(headers).toMatchObject({
      'x-forwarded-for': '127.0.0.1',
      'x-forwarded-proto': 'http',
      'x-forwarded-host': previews.host,
      'x-forwarded-port': String(previews.port),
      forwarded: `for=127.0.0.1;host="${previews.host}";proto=http`,
    });
    const names = Object.keys(headers);
    expect(names).toContain('x-custom_name');
    // A server that reads headers as variables has one for both forms of a name.
    for (const name of ['x_forwarded_for', 'x_real_ip']) expect(names).not.toContain(name);
    for (const name of ['x-forwarded-server', 'x-real-ip', 'x-secret', 'proxy-authorization', 'te']) {
      expect(names).not.toContain(name);
    }
  });

  it('keeps the list of a trusted proxy', async () => {
    const previews = await startPreviews(echo(), { trusted: ['127.0.0.1'] });
    const { headers } = await echoOf(previews, { headers: { 'x-forwarded-for': '1.2.3.4' } });
    expect(headers).toMatchObject({
      'x-forwarded-for': '1.2.3.4, 127.0.0.1',
      forwarded: `for=1.2.3.4;host="${previews.host}";proto=http`,
    });
  });

  it('does not carry the grant', async () => {
    const previews = await startPreviews(echo());
    const { headers } = await echoOf(previews, {
      headers: {
        cookie: 'a=1; __Host-sandkeep-preview=secret; b=2;__Host-sandkeep-notice=other',
        authorization: 'bearer  skp_secret',
        'x-sandkeep-preview': 'skp_secret',
      },
    });
    expect(headers['cookie']).toBe('a=1; b=2');
    expect(JSON.stringify(headers)).not.toMatch(/secret|other/);
    const own = await echoOf(previews, { headers: { authorization: 'Bearer of-the-application' } });
    expect(own.headers['authorization']).toBe('Bearer of-the-application');
  });

  it('has the host that the server expects of itself where the preview says so', async () => {
    const sandbox = httpSandbox((request, response) => {
      response.writeHead(302, { location: `http://localhost:3000/next?${request.headers.origin}` }).end();
    });
    const previews = await startPreviews(sandbox, { hostForm: 'sandbox' });
    const { headers } = await ask(previews, { headers: { origin: `http://${previews.host}` } });
    expect(headers.location).toBe(`http://${previews.host}/next?http://localhost:3000`);
  });

  it('waits for the 100 of the server before its body', async () => {
    const sandbox = echo();
    const order: string[] = [];
    sandbox.on('checkContinue', (request, response) => {
      order.push('asked');
      response.writeContinue();
      sandbox.emit('request', request, response);
    });
    const previews = await startPreviews(sandbox);
    const request = httpRequest({
      host: '127.0.0.1',
      port: previews.port,
      method: 'PUT',
      headers: { host: previews.host, expect: '100-continue', 'content-length': 4 },
    });
    request.flushHeaders();
    await once(request, 'continue');
    order.push('allowed');
    request.end('text');
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    expect(answer.statusCode).toBe(200);
    answer.resume();
    expect(order).toEqual(['asked', 'allowed']);
  });

  it('passes chunks and trailers in both directions', async () => {
    const sandbox = httpSandbox((request, response) => {
      request.resume().on('end', () => {
        response.writeHead(200, { trailer: 'x-sum' });
        response.write('chunk');
        response.addTrailers({ 'x-sum': request.trailers['x-in'] ?? 'none' });
        response.end();
      });
    });
    const previews = await startPreviews(sandbox);
    const request = httpRequest({
      host: '127.0.0.1',
      port: previews.port,
      method: 'POST',
      headers: { host: previews.host, trailer: 'x-in' },
    });
    request.write('body');
    request.addTrailers({ 'x-in': '42' });
    request.end();
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    await once(answer.resume(), 'end');
    expect(answer.trailers).toEqual({ 'x-sum': '42' });
  });

  it.each([
    ['HEAD', 200, { 'content-length': '7' }],
    ['GET', 204, {}],
    ['GET', 304, { etag: '"x"' }],
  ])('%s %i has no body, and the connection serves the next one', async (method, status, headers) => {
    const sandbox = httpSandbox((_request, response) => response.writeHead(status, headers).end());
    const previews = await startPreviews(sandbox);
    for (let round = 0; round < 3; round += 1) {
      const answer = await ask(previews, { method });
      expect(answer).toMatchObject({ status, text: '', headers });
    }
    expect(previews.opened()).toBe(1);
  });

  it('uses kept connections again, and survives those that the server has closed', async () => {
    const sandbox = echo();
    const previews = await startPreviews(sandbox);
    await echoOf(previews);
    sandbox.closeIdleConnections();
    await echoOf(previews);
    await echoOf(previews);
    expect(previews.opened()).toBeLessThanOrEqual(3);
  });

  it('leaves nothing on a kept connection, which is no socket', async () => {
    const streams: Duplex[] = [];
    const sandbox = echo();
    const openPort = () => {
      const socket = connect((sandbox.address() as AddressInfo).port, '127.0.0.1');
      streams.push(Duplex.from({ readable: socket, writable: socket }));
      return Promise.resolve(streams.at(-1)!);
    };
    const previews = await startPreviews(sandbox, { openPort });
    const listeners = () => streams[0]!.eventNames().map((name) => streams[0]!.listenerCount(name));
    await echoOf(previews);
    await echoOf(previews);
    const before = listeners();
    for (let count = 0; count < 12; count += 1) await echoOf(previews);
    expect(streams).toHaveLength(1);
    expect(listeners()).toEqual(before);
  });

  it('may send its body while the answer comes', async () => {
    const sandbox = httpSandbox((request, response) => {
      response.writeHead(200);
      request.pipe(response);
    });
    const previews = await startPreviews(sandbox);
    const request = httpRequest({
      host: '127.0.0.1',
      port: previews.port,
      method: 'POST',
      headers: { host: previews.host },
    });
    request.write('one');
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    expect(String((await once(answer, 'data'))[0])).toBe('one');
    request.write('two');
    expect(String((await once(answer, 'data'))[0])).toBe('two');
    request.end();
    await once(answer, 'end');
  });

  it('gets an early answer although its body is not read', async () => {
    const sandbox = httpSandbox((_request, response) => response.writeHead(413).end('too large'));
    const previews = await startPreviews(sandbox);
    const { status } = await ask(previews, { method: 'POST', body: Buffer.alloc(8 * MIB) });
    expect(status).toBe(413);
    await until(() => previews.meters.open === 0);
  });

  it('is counted, and logged without its path', async () => {
    const previews = await startPreviews(echo());
    await ask(previews, { path: '/path?token=hidden', method: 'POST', body: 'abc' });
    await ask(previews, { headers: { 'x-test-grant': 'no' } });
    await until(() => previews.meters.outcomes.length === 2);
    expect(previews.meters.outcomes).toEqual(['proxied', 'no_grant']);
    expect(previews.meters.bytes.in).toBe(3);
    expect(previews.meters.added).toHaveLength(1);
    expect(previews.logs.join('')).toContain('request to a preview answered');
    expect(previews.logs.join('')).not.toMatch(/hidden|\/path/);
  });
});

describe('an answer', () => {
  it('keeps its head and body, and cookies stay on the host', async () => {
    const sandbox = httpSandbox((_request, response) => {
      const headers = [
        ['Set-Cookie', 'a=1; Domain=localhost; Path=/'],
        ['Set-Cookie', 'b=2; path=/;DOMAIN = .localhost'],
        ['Set-Cookie', '__host-SANDKEEP-preview=evil; Secure; Path=/'],
        ['Set-Cookie', '=__Host-sandkeep-preview=evil'],
        ['Set-Cookie', 'domain=x; HttpOnly'],
        ['Strict-Transport-Security', 'max-age=1; includeSubDomains'],
        ['Alt-Svc', 'h3=":1"'],
        ['Clear-Site-Data', '"cookies", "cache"'],
        ['X-Twice', '1'],
        ['X-Twice', '2'],
      ];
      response.writeHead(201, 'Made', headers.flat());
      response.end('made');
    });
    const previews = await startPreviews(sandbox);
    const { status, headers, text } = await ask(previews);
    expect({ status, text }).toEqual({ status: 201, text: 'made' });
    expect(headers['set-cookie']).toEqual(['a=1; Path=/', 'b=2; path=/', 'domain=x; HttpOnly']);
    expect(headers).toMatchObject({
      'clear-site-data': '"cache"',
      'x-twice': '1, 2',
      'referrer-policy': 'same-origin',
      'x-robots-tag': 'noindex',
    });
    expect(headers['strict-transport-security'] ?? headers['alt-svc']).toBeUndefined();
  });

  it('keeps the policies that the application sets itself', async () => {
    const sandbox = httpSandbox((_request, response) =>
      response.writeHead(200, { 'Referrer-Policy': 'origin', 'X-Robots-Tag': 'all' }).end(),
    );
    const { headers } = await ask(await startPreviews(sandbox));
    expect(headers).toMatchObject({ 'referrer-policy': 'origin', 'x-robots-tag': 'all' });
  });

  it('streams its head before its first byte, as event streams do', async () => {
    let send: (text: string) => void = () => undefined;
    const sandbox = httpSandbox((_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
      send = (text) => response.write(text);
    });
    const previews = await startPreviews(sandbox);
    const request = httpRequest({ host: '127.0.0.1', port: previews.port, headers: { host: previews.host } });
    request.on('error', () => undefined).end();
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    answer.on('error', () => undefined);
    for (const text of ['data: 1\n\n', 'data: 2\n\n']) {
      send(text);
      expect(String((await once(answer, 'data'))[0])).toBe(text);
    }
    request.destroy();
  });

  it('is read only as fast as its client reads', async () => {
    let sent = 0;
    const sandbox = httpSandbox((_request, response) => {
      response.writeHead(200);
      const more = () => {
        while (sent < 200 * MIB && !response.destroyed) {
          sent += MIB;
          if (!response.write(Buffer.alloc(MIB))) return void response.once('drain', more);
        }
        response.end();
      };
      more();
    });
    const previews = await startPreviews(sandbox);
    const request = httpRequest({ host: '127.0.0.1', port: previews.port, headers: { host: previews.host } });
    request.on('error', () => undefined).end();
    const [answer] = (await once(request, 'response')) as [IncomingMessage];
    answer.on('error', () => undefined);
    // Buffers of the kernel and of this process are full when nothing more is sent.
    for (let before = -1; before !== sent; await delay(300)) before = sent;
    expect(sent).toBeLessThan(100 * MIB);
    answer.resume();
    await once(answer, 'end');
    expect(sent).toBe(200 * MIB);
  });

  it('ends in the sandbox when its client leaves', async () => {
    let closed = false;
    const sandbox = httpSandbox((_request, response) => {
      response.writeHead(200).flushHeaders();
      response.once('close', () => (closed = true));
    });
    const previews = await startPreviews(sandbox);
    const request = httpRequest({ host: '127.0.0.1', port: previews.port, headers: { host: previews.host } });
    request.on('error', () => undefined).end();
    await once(request, 'response');
    request.destroy();
    await until(() => closed);
    expect(previews.meters.open).toBe(0);
  });

  it('breaks off at once when its grant ends', async () => {
    const sandbox = httpSandbox((_request, response) => response.writeHead(200).write('begun'));
    const previews = await startPreviews(sandbox);
    const answer = ask(previews);
    await until(() => previews.meters.bytes.out === 5);
    previews.revoke();
    await expect(answer).rejects.toThrow();
    await until(() => previews.meters.open === 0);
  });

  it('is an error that tells the cause when nothing listens', async () => {
    const previews = await startPreviews(echo(), {
      openPort: ({ port }) => Promise.reject(new PortRefusedError(port)),
    });
    const { status, text } = await ask(previews);
    expect(status).toBe(502);
    expect(text).toContain('nothing listens on port 3000');
  });
});

describe('a WebSocket', () => {
  it('passes messages both ways, and closes with its grant', async () => {
    const sandbox = httpSandbox((_request, response) => response.writeHead(404).end());
    const sockets = new WebSocketServer({ server: sandbox, handleProtocols: () => 'chat' });
    sockets.on('connection', (socket) => {
      socket.send('hello');
      socket.on('message', (data, isBinary) => socket.send(data, { binary: isBinary }));
    });
    const previews = await startPreviews(sandbox);
    const client = new WebSocket(`ws://127.0.0.1:${previews.port}/socket`, ['chat'], {
      headers: { host: previews.host },
    });
    expect(String((await once(client, 'message'))[0])).toBe('hello');
    expect(client.protocol).toBe('chat');
    const large = Buffer.alloc(3 * MIB, 'x');
    client.send(large);
    const [back] = (await once(client, 'message')) as [Buffer];
    expect(back.equals(large)).toBe(true);
    expect(previews.meters.open).toBe(1);
    client.on('error', () => undefined);
    previews.revoke();
    await once(client, 'close');
    await until(() => previews.meters.open === 0 && sockets.clients.size === 0);
    expect(previews.meters.outcomes).toEqual(['upgraded']);
  });

  it('gets the refusal of a server', async () => {
    const sandbox = httpSandbox((_request, response) => response.end());
    sandbox.on('upgrade', (_request, socket) =>
      socket.end('HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno'),
    );
    const previews = await startPreviews(sandbox);
    const client = new WebSocket(`ws://127.0.0.1:${previews.port}/`, { headers: { host: previews.host } });
    const [, answer] = (await once(client, 'unexpected-response')) as [unknown, IncomingMessage];
    expect(answer.statusCode).toBe(403);
    client.on('error', () => undefined).terminate();
  });
});

describe('a stopped sandbox', () => {
  it('starts for the request, which waits for its server', async () => {
    let [running, tries] = [false, 0];
    const sandbox = echo();
    const waker: PreviewWaker = {
      listensUntil: () => Promise.resolve(performance.now() + 15_000),
      patienceOf: () => 5_000,
      wait: async () => {
        await delay(20);
        running = true;
      },
      page: () => Promise.reject(new Error('not asked for')),
    };
    const { connect } = await import('node:net');
    const previews = await startPreviews(sandbox, {
      waker,
      openPort: async ({ port }) => {
        if (!running) throw new NotRunningError('stopped');
        tries += 1;
        if (tries < 3) throw new PortRefusedError(port);
        const socket = connect((sandbox.address() as { port: number }).port, '127.0.0.1');
        await once(socket, 'connect');
        return socket;
      },
    });
    const seen = await echoOf(previews, { method: 'POST', body: 'kept' });
    expect(seen.text).toBe('kept');
  });

  it('has a page for clients that do not wait', async () => {
    const waker: PreviewWaker = {
      listensUntil: () => Promise.resolve(performance.now() + 15_000),
      patienceOf: () => undefined,
      wait: () => Promise.reject(new Error('not asked for')),
      page: (_target, request, response) =>
        Promise.resolve(answerError(request, response, new ApiError('not_ready'))),
    };
    const previews = await startPreviews(echo(), { waker, target: { status: 'stopped' } });
    expect((await ask(previews)).status).toBe(503);
  });
});
