import { once } from 'node:events';
import {
  connect,
  constants,
  createSecureServer,
  createServer,
  type ClientHttp2Session,
  type IncomingHttpHeaders,
  type ServerHttp2Stream,
} from 'node:http2';
import { createServer as createHttpsServer } from 'node:https';
import { buffer } from 'node:stream/consumers';
import { setTimeout } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { identity, listen, openGate, NAME, type Gate, type Given } from '../support/interceptor.js';

type Answer = (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void;

/** A client of HTTP/2 and a server of it, with the gateway between them. */
async function openSession(answer: Answer, given: Partial<Given> = {}) {
  const server = createSecureServer(identity());
  server.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    answer(stream, headers);
  });
  const gate = await openGate({ port: await listen(server), protocols: ['h2', 'http/1.1'], ...given });
  return { gate, session: await sessionOf(gate), server };
}

async function sessionOf(gate: Gate): Promise<ClientHttp2Session> {
  const socket = await gate.tls(['h2', 'http/1.1']);
  expect(socket.alpnProtocol).toBe('h2');
  const session = connect(`https://${NAME}`, { createConnection: () => socket });
  session.on('error', () => {});
  onTestFinished(() => session.destroy());
  return session;
}

async function ask(session: ClientHttp2Session, headers: Record<string, string>, body?: string) {
  const stream = session.request(headers, { endStream: body === undefined });
  if (body !== undefined) stream.end(body);
  const trailers = once(stream, 'trailers') as Promise<[IncomingHttpHeaders]>;
  const [answered] = (await once(stream, 'response')) as [IncomingHttpHeaders];
  return { headers: answered, text: String(await buffer(stream)), trailers };
}

it('forwards requests side by side, and their trailers', async () => {
  const { session, gate } = await openSession((stream, headers) => {
    let length = 0;
    stream.on('data', (part: Buffer) => (length += part.length));
    stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
    stream.on('end', () => {
      const answered = { ':status': 201, 'x-path': headers[':path'], 'set-cookie': ['a=1', 'b=2'] };
      stream.respond(answered, { waitForTrailers: true });
      stream.end(`${headers[':method']} ${headers[':scheme']} ${headers[':authority']} ${length}`);
    });
  });
  const answers = await Promise.all(
    Array.from({ length: 50 }, (_, index) =>
      ask(session, { ':path': `/${index}`, ':method': 'POST' }, 'x'.repeat(index)),
    ),
  );
  for (const [index, { headers, text, trailers }] of answers.entries()) {
    expect(headers).toMatchObject({ ':status': 201, 'x-path': `/${index}`, 'set-cookie': ['a=1', 'b=2'] });
    expect(text).toBe(`POST https ${NAME}:443 ${index}`);
    expect((await trailers)[0]).toMatchObject({ 'grpc-status': '0' });
  }
  expect(gate.denials).toEqual([]);
});

it('passes a stream both ways, as gRPC has it, with the trailers of a client', async () => {
  let seen: IncomingHttpHeaders | undefined;
  const { session } = await openSession((stream) => {
    stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
    stream.on('data', (part: Buffer) => stream.write(`got ${part.toString()}`));
    stream.on('trailers', (headers) => (seen = headers));
    stream.on('end', () => stream.end());
    stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '7' }));
  });
  const stream = session.request(
    { ':path': '/s/m', ':method': 'POST', te: 'trailers' },
    { waitForTrailers: true },
  );
  stream.once('wantTrailers', () => stream.sendTrailers({ 'x-sum': '3' }));
  for (const part of ['a', 'b', 'c']) {
    stream.write(part);
    expect(String((await once(stream, 'data'))[0])).toBe(`got ${part}`);
  }
  const trailers = once(stream, 'trailers');
  stream.end();
  expect((await trailers)[0]).toMatchObject({ 'grpc-status': '7' });
  expect(seen).toMatchObject({ 'x-sum': '3' });
});

it('passes an answer of trailers only, early hints, and answers without a body', async () => {
  const { session } = await openSession((stream, headers) => {
    if (headers[':path'] === '/only')
      return stream.respond({ ':status': 200, 'grpc-status': '5' }, { endStream: true });
    stream.additionalHeaders({ ':status': 103, link: '</a>; rel=preload' });
    stream.respond({ ':status': headers[':method'] === 'HEAD' ? 200 : 204, 'x-kept': '1' });
    stream.end();
  });
  expect((await ask(session, { ':path': '/only' })).headers).toMatchObject({ 'grpc-status': '5' });
  const stream = session.request({ ':path': '/' });
  const [hints] = (await once(stream, 'headers')) as [IncomingHttpHeaders];
  expect(hints).toMatchObject({ ':status': 103, link: '</a>; rel=preload' });
  expect((await once(stream, 'response'))[0]).toMatchObject({ ':status': 204, 'x-kept': '1' });
  expect((await ask(session, { ':path': '/', ':method': 'HEAD' })).headers[':status']).toBe(200);
});

it('refuses a request for another host, and keeps the others of its connection', async () => {
  let seen = 0;
  const { session, gate } = await openSession((stream) => {
    seen += 1;
    stream.respond({ ':status': 200 });
    stream.end('fine');
  });
  for (const [headers, status] of [
    [{ ':authority': 'other.example' }, 421],
    [{ ':authority': NAME, host: 'other.example' }, 400],
  ] as const) {
    const { headers: answered, text } = await ask(session, { ':path': '/', ...headers });
    expect(answered[':status']).toBe(status);
    expect(JSON.parse(text)).toMatchObject({ code: 'network_policy_denied', domain: expect.any(String) });
  }
  expect(seen).toBe(0);
  expect(gate.denials).toMatchObject([{ kind: 'request', name: 'other.example' }, { kind: 'request' }]);
  expect((await ask(session, { ':path': '/' })).text).toBe('fine');
});

it('passes resets both ways', async () => {
  const codes: Promise<number>[] = [];
  const { session } = await openSession((stream, headers) => {
    if (headers[':path'] === '/server') return stream.close(constants.NGHTTP2_ENHANCE_YOUR_CALM);
    codes.push(once(stream, 'close').then(() => stream.rstCode));
  });
  const refused = session.request({ ':path': '/server' });
  refused.on('error', () => {});
  await new Promise((resolve) => refused.once('close', resolve));
  expect(refused.rstCode).toBe(constants.NGHTTP2_ENHANCE_YOUR_CALM);
  const left = session.request({ ':path': '/client', ':method': 'POST' }, { endStream: false });
  while (codes.length === 0) await setTimeout(5);
  left.close(constants.NGHTTP2_CANCEL);
  expect(await codes[0]).toBe(constants.NGHTTP2_CANCEL);
});

it('completes streams under way when the server ends the connection', async () => {
  const { session } = await openSession((stream) => {
    stream.respond({ ':status': 200 });
    stream.session!.goaway();
    void setTimeout(50).then(() => stream.end('complete'));
  });
  expect((await ask(session, { ':path': '/' })).text).toBe('complete');
  if (!session.closed) await once(session, 'close');
});

it('moves large bodies at the speed of a slow reader', async () => {
  const MIB = 1_048_576;
  const size = 40 * MIB;
  let written = 0;
  const { session } = await openSession((stream) => {
    stream.respond({ ':status': 200 });
    const chunk = Buffer.alloc(MIB);
    const write = () => {
      while (written < size) {
        written += MIB;
        if (!stream.write(chunk)) return void stream.once('drain', write);
      }
      stream.end();
    };
    write();
  });
  const stream = session.request({ ':path': '/' });
  await once(stream, 'response');
  await setTimeout(300);
  // The windows, and the buffers of the kernel.
  expect(written).toBeLessThan(32 * MIB);
  expect((await buffer(stream)).length).toBe(size);
});

it('speaks the protocol that the server chooses, also in clear with prior knowledge', async () => {
  const onlyOne = createHttpsServer(identity());
  const one = await openGate({ port: await listen(onlyOne), protocols: ['h2', 'http/1.1'] });
  expect((await one.tls(['h2', 'http/1.1'])).alpnProtocol).toBe('http/1.1');
  const server = createServer(
    (request, response) => void response.end(`${request.scheme} ${request.authority}`),
  );
  const gate = await openGate({ port: await listen(server), encrypted: false });
  const socket = await gate.tcp();
  const session = connect(`http://${NAME}`, { createConnection: () => socket });
  onTestFinished(() => session.destroy());
  expect((await ask(session, { ':path': '/' })).text).toBe(`http ${NAME}:80`);
});
