import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import {
  connect,
  constants,
  createServer,
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type IncomingHttpHeaders,
  type OutgoingHttpHeaders,
  type Settings,
} from 'node:http2';
import { createServer as createHttp1 } from 'node:http';
import { connect as connectTcp, type AddressInfo } from 'node:net';
import { request as httpsRequest } from 'node:https';
import type { IncomingMessage } from 'node:http';
import { Worker } from 'node:worker_threads';
import { connect as connectTls } from 'node:tls';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { Certificate } from '../../../src/http/tls/certificate.js';
import { Authority, pairFiles } from '../../support/certificates.js';
import { until as poll } from '../../support/polling.js';
import { startPreviews, type TestPreviews } from '../../support/previews.js';

const until = (isSo: () => boolean) => poll(() => Promise.resolve(isSo()), Boolean);
const authority = new Authority();
const pair = authority.issue({ names: ['*.localhost', 'localhost'] });
const silent = { info: () => undefined, warn: () => undefined, error: () => undefined };
const certificate = () => new Certificate(pairFiles(pair), silent);

function open({ port }: TestPreviews, settings: Settings = {}): ClientHttp2Session {
  const session = connect(`https://localhost:${port}`, {
    ca: authority.root,
    servername: 'localhost',
    settings,
  });
  session.on('error', () => undefined);
  onTestFinished(() => session.destroy());
  return session;
}

/** Two clients that send pings for some time and leave. */
const FLOOD = `
const { connect } = require('node:tls');
const { parentPort, workerData: port } = require('node:worker_threads');
const ping = Buffer.from('0000080600000000000000000000000000', 'hex');
const preface = Buffer.concat([Buffer.from('PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n'), Buffer.from('000000040000000000', 'hex')]);
for (const _ of [1, 2]) {
  const socket = connect({ host: '127.0.0.1', port, ALPNProtocols: ['h2'], rejectUnauthorized: false });
  socket.on('error', () => undefined).resume().once('secureConnect', () => {
    parentPort.postMessage('connected');
    socket.write(preface);
    const end = Date.now() + 500;
    const send = () => {
      if (Date.now() > end) return socket.destroy();
      if (socket.write(Buffer.alloc(ping.length * 500, ping))) setImmediate(send);
      else socket.once('drain', send);
    };
    send();
  });
}`;

interface Got {
  headers: IncomingHttpHeaders;
  trailers: IncomingHttpHeaders;
  text: string;
}

function get(session: ClientHttp2Session, headers: OutgoingHttpHeaders, body?: string): Promise<Got> {
  return new Promise((resolve, reject) => {
    const stream = session.request(headers, { endStream: body === undefined });
    const got: Got = { headers: {}, trailers: {}, text: '' };
    stream.setEncoding('utf8').on('data', (chunk: string) => (got.text += chunk));
    stream.on('response', (found) => (got.headers = found));
    stream.on('trailers', (found) => (got.trailers = found));
    stream.on('error', reject).on('close', () => resolve(got));
    if (body !== undefined) stream.end(body);
  });
}

const echo = () =>
  createHttp1((request, response) => {
    let text = '';
    request.on('data', (chunk: Buffer) => (text += chunk.toString()));
    request.on('end', () => {
      response.writeHead(200, { connection: 'close', 'set-cookie': ['a=1', 'b=2; Domain=localhost'] });
      response.end(JSON.stringify({ url: request.url, headers: request.headers, text }));
    });
  });

describe('a client of HTTP/2', () => {
  it('reaches a server of HTTP/1.1', async () => {
    const previews = await startPreviews(echo(), { certificate: certificate() });
    const session = open(previews);
    const { headers, text } = await get(
      session,
      { ':method': 'POST', ':path': '/a?b', ':authority': previews.host, cookie: ['a=1', 'b=2'] },
      'body',
    );
    expect(headers).toMatchObject({ ':status': 200, 'set-cookie': ['a=1', 'b=2'] });
    const seen = JSON.parse(text) as { url: string; headers: Record<string, string>; text: string };
    expect(seen).toMatchObject({ url: '/a?b', text: 'body' });
    expect(seen.headers).toMatchObject({
      host: previews.host,
      cookie: 'a=1; b=2',
      'x-forwarded-proto': 'https',
      'x-forwarded-for': '127.0.0.1',
      'transfer-encoding': 'chunked',
    });
    expect(Object.keys(seen.headers).filter((name) => name.startsWith(':'))).toEqual([]);
  });

  it('may use HTTP/1.1 on the same port', async () => {
    const previews = await startPreviews(echo(), { certificate: certificate() });
    const request = httpsRequest({
      host: '127.0.0.1',
      port: previews.port,
      ca: authority.root,
      servername: 'localhost',
      headers: { host: previews.host },
    });
    const [answer] = (await once(request.end(), 'response')) as [IncomingMessage];
    expect(answer.statusCode).toBe(200);
    await once(answer.resume(), 'end');
  });

  it('has one host, a path, and no headers of a connection', async () => {
    const previews = await startPreviews(echo(), { certificate: certificate() });
    const session = open(previews);
    const authority = previews.host;
    const ask = (headers: OutgoingHttpHeaders) =>
      get(session, { ':path': '/', ...headers }).then(
        ({ headers: found }) => found[':status'],
        () => 'reset',
      );
    expect(await ask({ ':authority': authority })).toBe(200);
    expect(await ask({ ':authority': authority, host: authority })).toBe(200);
    expect(await ask({ ':authority': authority, host: 'evil.example' })).toBe(400);
    expect(await ask({ ':authority': 'evil.example' })).toBe(421);
    // The HTTP/2 of Node 24 refuses it itself.
    expect([421, 'reset']).toContain(await ask({ ':authority': `user@${authority}` }));
    expect(await ask({ ':authority': authority, ':method': 'TRACE' })).toBe(501);
    expect(await ask({ ':authority': authority, ':method': 'trace' })).toBe(501);
    for (const odd of [
      { ':path': 'http://evil.example/' },
      { ':path': '/a b' },
      { ':method': 'GET /x HTTP/1.1' },
    ]) {
      expect([400, 'reset']).toContain(await ask({ ':authority': authority, ...odd }));
    }
  });

  it('sees a broken answer as broken', async () => {
    const sandbox = createHttp1((_request, response) => {
      response.writeHead(200, { 'content-length': 100 }).write('half');
      setTimeout(() => response.destroy(), 50);
    });
    const previews = await startPreviews(sandbox, { certificate: certificate() });
    const broken = get(open(previews), { ':path': '/', ':authority': previews.host });
    await expect(broken).rejects.toThrow();
    await until(() => previews.meters.open === 0);
  });

  it('holds a bounded memory for answers that it does not take', async () => {
    const KIB = 1024;
    const unsent = { total: 1024 * KIB, each: 100 * KIB, base: 0 };
    const previews = await startPreviews(echo(), { certificate: certificate(), limits: { unsent } });
    const session = open(previews, { initialWindowSize: 0 });
    const refused = { ':path': '/', ':authority': previews.host, 'x-test-grant': 'no' };
    const send = async (more: OutgoingHttpHeaders = {}) => {
      const stream = session.request({ ...refused, ...more });
      const result = new Promise((resolve) => {
        stream.on('response', ({ ':status': status }) => resolve(status));
        stream.on('error', () => resolve(stream.rstCode));
      });
      return { stream, result: await result };
    };
    const taken: ClientHttp2Stream[] = [];
    for (let index = 0; index < 4; index += 1) {
      const { stream, result } = await send();
      expect(result).toBe(401);
      taken.push(stream);
    }
    // Four requests with short heads fill this limit.
    expect((await send()).result).toBe(constants.NGHTTP2_REFUSED_STREAM);
    taken[0]!.close(constants.NGHTTP2_CANCEL);
    await once(taken[0]!, 'close');
    expect((await send({ 'x-long': 'a'.repeat(20 * KIB) })).result).toBe(constants.NGHTTP2_REFUSED_STREAM);
    expect((await send()).result).toBe(401);
  });

  it('has 30 seconds to read an answer of the service', async () => {
    const previews = await startPreviews(echo(), { certificate: certificate() });
    const session = open(previews, { initialWindowSize: 0 });
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    onTestFinished(() => void vi.useRealTimers());
    const stream = session.request({ ':path': '/', ':authority': previews.host, 'x-test-grant': 'no' });
    stream.on('error', () => undefined);
    await once(stream, 'response');
    vi.advanceTimersByTime(30_000);
    await new Promise((resolve) => stream.once('close', resolve));
    expect(stream.rstCode).not.toBe(constants.NGHTTP2_NO_ERROR);
  });

  it('leaves nothing behind when its connection vanishes', async () => {
    const previews = await startPreviews(
      createHttp1(() => undefined),
      { certificate: certificate() },
    );
    const { port } = previews;
    const socket = connectTls({ port, ca: authority.root, servername: 'localhost', ALPNProtocols: ['h2'] });
    await once(socket, 'secureConnect');
    const session = connect(`https://localhost:${port}`, { createConnection: () => socket });
    session.on('error', () => undefined);
    const stream = session.request({ ':path': '/', ':authority': previews.host });
    stream.on('error', () => undefined);
    await until(() => previews.meters.open === 1);
    // Without a word of HTTP/2, as after the end of a program.
    socket.destroy();
    await until(() => previews.meters.open === 0);
    expect(previews.grantListeners()).toBe(0);
  });

  it('leaves no connection behind after a flood of pings', async () => {
    const previews = await startPreviews(echo(), { certificate: certificate(), keepAliveMs: 2_000 });
    // A thread of its own: Node still has answers to write when the client leaves.
    const flood = new Worker(FLOOD, { eval: true, workerData: previews.port });
    let connected = 0;
    flood.on('message', () => (connected += 1));
    await once(flood, 'exit');
    expect(connected).toBe(2);
    await until(() => previews.sessions() === 0);
    expect(previews.meters.open).toBe(0);
  });

  it('loses its streams when the grant ends', async () => {
    const sandbox = createHttp1((_request, response) => response.writeHead(200).write('begun'));
    const previews = await startPreviews(sandbox, { certificate: certificate() });
    const answer = get(open(previews), { ':path': '/', ':authority': previews.host });
    const rejected = expect(answer).rejects.toThrow();
    await until(() => previews.meters.bytes.out === 5);
    previews.revoke();
    await rejected;
  });
});

describe('gRPC', () => {
  const grpc = (previews: TestPreviews) => ({
    ':method': 'POST',
    ':path': '/package.Service/Call',
    ':authority': previews.host,
    'content-type': 'application/grpc',
    te: 'trailers',
  });

  async function startGrpc() {
    const sandbox = createServer();
    const seen: IncomingHttpHeaders[] = [];
    sandbox.on('stream', (stream, headers) => {
      seen.push(headers);
      stream.on('error', () => undefined);
      if (headers[':path'] === '/fails') {
        stream.respond(
          { ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '5' },
          { endStream: true },
        );
        return;
      }
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0', 'grpc-message': 'fine' }));
      stream.on('data', (data) => stream.write(data)).on('end', () => stream.end());
    });
    return { previews: await startPreviews(sandbox, { certificate: certificate() }), seen };
  }

  it('streams both ways, and ends with its trailers', async () => {
    const { previews, seen } = await startGrpc();
    const session = open(previews);
    const stream = session.request(grpc(previews));
    let trailers: IncomingHttpHeaders = {};
    stream.on('trailers', (found) => (trailers = found));
    stream.setEncoding('utf8');
    for (const message of ['one', 'two']) {
      stream.write(message);
      expect((await once(stream, 'data'))[0]).toBe(message);
    }
    stream.end();
    await once(stream, 'close');
    expect(trailers).toMatchObject({ 'grpc-status': '0', 'grpc-message': 'fine' });
    expect(seen[0]).toMatchObject({
      te: 'trailers',
      ':authority': previews.host,
      'x-forwarded-proto': 'https',
    });
    expect(previews.opened()).toBe(1);
    await until(() => previews.meters.open === 0);
  });

  it('passes an answer of trailers alone, and uses one connection for a client', async () => {
    const { previews } = await startGrpc();
    const session = open(previews);
    for (let round = 0; round < 3; round += 1) {
      const call = session.request({ ...grpc(previews), ':path': '/fails' });
      call.resume();
      const [headers, flags] = await once(call, 'response');
      expect(headers).toMatchObject({ ':status': 200, 'grpc-status': '5' });
      // Clients take the status from headers only if they end the stream.
      expect(flags & constants.NGHTTP2_FLAG_END_STREAM).not.toBe(0);
      call.close();
    }
    expect(previews.opened()).toBe(1);
  });

  it('ends a call whose server sends interim headers without end', async () => {
    const sandbox = createServer();
    let sent = 0;
    sandbox.on('stream', (stream) => {
      stream.on('error', () => undefined);
      const more = () => {
        if (stream.destroyed || stream.closed) return;
        stream.additionalHeaders({ ':status': 103 });
        sent += 1;
        setImmediate(more);
      };
      more();
    });
    const previews = await startPreviews(sandbox, { certificate: certificate() });
    const { headers } = await get(open(previews), grpc(previews), 'x');
    expect(headers[':status']).toBe(502);
    expect(sent).toBeGreaterThan(0);
    await until(() => previews.meters.open === 0);
  });

  it('is 502 when the server speaks HTTP/1.1 only', async () => {
    const previews = await startPreviews(echo(), { certificate: certificate() });
    const { headers } = await get(open(previews), grpc(previews), 'x');
    expect(headers[':status']).toBe(502);
  });

  it('survives clients that go, or reset their calls, while the port opens', async () => {
    let opened = 0;
    const sandbox = createServer();
    const previews = await startPreviews(sandbox, {
      certificate: certificate(),
      async openPort() {
        await delay(100);
        const socket = connectTcp((sandbox.address() as AddressInfo).port, '127.0.0.1');
        socket.on('error', () => undefined);
        opened += 1;
        return socket;
      },
    });
    const ways: ((session: ClientHttp2Session, call: ClientHttp2Stream) => void)[] = [
      (session) => session.goaway(constants.NGHTTP2_PROTOCOL_ERROR),
      (session) => session.destroy(),
      (_session, call) => call.close(constants.NGHTTP2_CANCEL),
    ];
    for (const [index, leave] of ways.entries()) {
      const session = open(previews);
      const call = session.request(grpc(previews), { endStream: false });
      call.on('error', () => undefined);
      await until(() => previews.meters.open === 1);
      leave(session, call);
      await until(() => opened === index + 1 && previews.meters.open === 0);
    }
    expect(previews.meters.outcomes).toHaveLength(ways.length);
  });
});
