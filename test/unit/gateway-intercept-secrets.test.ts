import { once } from 'node:events';
import { createServer as createClearServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { connect, createSecureServer, type IncomingHttpHeaders, type ServerHttp2Stream } from 'node:http2';
import { createServer } from 'node:https';
import type { Socket } from 'node:net';
import { buffer } from 'node:stream/consumers';
import type { TLSSocket } from 'node:tls';
import * as zlib from 'node:zlib';
import { expect, it, onTestFinished } from 'vitest';
import type { GatedSecret } from '../../src/gateway/protocol.js';
import { identity, listen, openGate, NAME, SECRET, type Given } from '../support/interceptor.js';

const { placeholder: P, value: VALUE } = SECRET;
const MIB = 1_048_576;

interface Seen {
  line: string;
  headers: IncomingMessage['headers'];
  body: string;
}

/** A server that notes its requests, and a gateway for a sandbox with secrets. */
async function open(
  secrets: GatedSecret[],
  answer: (response: ServerResponse, seen: Seen) => void = (response) =>
    void response.setHeader('content-type', 'application/octet-stream').end('fine'),
  given: Partial<Given> = {},
) {
  const seen: Seen[] = [];
  const listener = (request: IncomingMessage, response: ServerResponse) => {
    request.on('error', () => {});
    const parts: Buffer[] = [];
    request.on('data', (part: Buffer) => parts.push(part));
    request.on('end', () => {
      const body = Buffer.concat(parts).toString('latin1');
      seen.push({ line: `${request.method} ${request.url}`, headers: request.headers, body });
      answer(response, seen.at(-1)!);
    });
  };
  const server =
    given.encrypted === false ? createClearServer(listener) : createServer(identity(given.name), listener);
  return { seen, gate: await openGate({ port: await listen(server), secrets, ...given }) };
}

async function speak(socket: Socket | TLSSocket, head: string, body: string | Buffer = ''): Promise<string> {
  socket.write(
    `${head.trim().split(/\n\s*/).join('\r\n')}\r\nHost: ${NAME}\r\nConnection: close\r\n\r\n`,
    'latin1',
  );
  socket.write(body);
  return (await buffer(socket)).toString('latin1');
}

it('puts the value into headers, credentials, the query and the body, and corrects the length', async () => {
  const { gate, seen } = await open([SECRET]);
  const basic = Buffer.from(`me:${P}`).toString('base64');
  const body = JSON.stringify({ key: P, other: 'é' });
  const head = `POST /a?key=${encodeURIComponent(P)} HTTP/1.1
    X-Key: Bearer ${P}
    Authorization: Basic ${basic}
    Content-Type: application/json
    Content-Length: ${Buffer.byteLength(body)}`;
  expect(await speak(await gate.tls(), head, body)).toMatch(/^HTTP\/1.1 200 OK[^]*fine$/);
  const expected = JSON.stringify({ key: VALUE, other: 'é' });
  expect(seen).toMatchObject([
    {
      line: `POST /a?key=${VALUE}`,
      headers: {
        'x-key': `Bearer ${VALUE}`,
        authorization: `Basic ${Buffer.from(`me:${VALUE}`).toString('base64')}`,
        'content-length': String(Buffer.byteLength(expected)),
        'accept-encoding': 'identity',
      },
      body: Buffer.from(expected).toString('latin1'),
    },
  ]);
  expect(gate.flow.secrets).toContain('TOKEN');
  expect(gate.denials).toEqual([]);
});

it('puts the value into a chunked body whose placeholder is split, and answers 100 Continue itself', async () => {
  const { gate, seen } = await open([SECRET]);
  const socket = await gate.tls();
  socket.write(
    `POST / HTTP/1.1\r\nHost: ${NAME}\r\nConnection: close\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n`,
  );
  expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1.1 100 /);
  for (const part of ['a', ...Array.from(`<${P}>`), 'b']) socket.write(`1\r\n${part}\r\n`);
  socket.write('0\r\n\r\n');
  expect(String(await buffer(socket))).toMatch(/fine$/);
  expect(seen[0]).toMatchObject({
    body: `a<${VALUE}>b`,
    headers: { 'content-length': String(VALUE.length + 4) },
  });
  expect(seen[0]!.headers).not.toHaveProperty('expect');
});

it('lets a body of more than 16 MiB pass, unless it has a placeholder', async () => {
  const { gate, seen } = await open([SECRET]);
  const large = Buffer.alloc(20 * MIB, 'x');
  const head = `PUT / HTTP/1.1\nContent-Length: ${large.length}`;
  expect(await speak(await gate.tls(), head, large)).toMatch(/fine$/);
  expect(seen[0]!.body.length).toBe(large.length);
  large.write(P, large.length - 100);
  const answer = await speak(await gate.tls(), head, large);
  expect(answer).toMatch(/^HTTP\/1.1 403 [^]*"secret_policy_denied"[^]*more than 16 MiB/);
  expect(seen.length).toBe(1);
  expect(gate.denials).toMatchObject([{ kind: 'secret', secret: 'TOKEN', name: NAME }]);
});

it('refuses a placeholder that goes to another host, as its secret says', async () => {
  const other = (onViolation: GatedSecret['onViolation']): GatedSecret => ({
    ...SECRET,
    onViolation,
    allowedHosts: [{ type: 'exact', value: 'other.example' }],
  });
  for (const onViolation of ['block', 'block_and_log', 'block_and_terminate'] as const) {
    const { gate, seen } = await open([other(onViolation)]);
    const answer = await speak(await gate.tls(), `GET / HTTP/1.1\nX-Key: ${P}`);
    const refusal = JSON.parse(answer.split('\r\n\r\n')[1]!) as { message: string };
    expect(answer).toMatch(/^HTTP\/1.1 403 /);
    expect(refusal).toMatchObject({ code: 'secret_policy_denied', domain: NAME });
    expect(refusal.message).toContain('TOKEN');
    const body = Buffer.from('x'.repeat(100_000) + P);
    expect(await speak(await gate.tls(), `PUT / HTTP/1.1\nContent-Length: ${body.length}`, body)).toMatch(
      /^HTTP\/1.1 403 /,
    );
    expect(seen).toEqual([]);
    const told = {
      kind: 'secret',
      secret: 'TOKEN',
      name: NAME,
      ...(onViolation === 'block_and_terminate' && { terminates: true }),
    };
    expect(gate.denials).toMatchObject(onViolation === 'block' ? [] : [told, told]);
  }
  const passthrough = { ...other('block'), passthroughHosts: SECRET.allowedHosts };
  const { gate, seen } = await open([passthrough]);
  expect(await speak(await gate.tls(), `GET / HTTP/1.1\nX-Key: ${P}`)).toMatch(/fine$/);
  expect(seen[0]!.headers['x-key']).toBe(P);
});

it('gives no value to a server that is not verified, or in clear, unless the secret says so', async () => {
  const tls = { verifyUpstream: false, authorities: [] };
  const cases: [Partial<Given>, boolean, number][] = [
    [{ tls }, true, 403],
    [{ tls }, false, 200],
    [{ encrypted: false }, true, 403],
    [{ encrypted: false }, false, 200],
    [{ tls, resolved: false }, false, 403],
    [{ encrypted: false, resolved: false }, false, 403],
    [{ resolved: false }, true, 200],
  ];
  for (const [given, requireTlsIdentity, status] of cases) {
    const { gate, seen } = await open([{ ...SECRET, requireTlsIdentity }], undefined, given);
    const socket = given.encrypted === false ? await gate.tcp() : await gate.tls();
    expect(await speak(socket, `GET / HTTP/1.1\nX-Key: ${P}`)).toMatch(new RegExp(`^HTTP/1.1 ${status} `));
    expect(seen.map(({ headers }) => headers['x-key'])).toEqual(status === 200 ? [VALUE] : []);
  }
});

it('shows no value by TRACE, in an answer without a type, or in parts of a text', async () => {
  const repeat = (response: ServerResponse, { headers }: Seen) => void response.end(String(headers['x-key']));
  const head = (method: string) => `${method} / HTTP/1.1\nX-Key: ${P}`;
  const { gate, seen } = await open([SECRET], repeat);
  const untyped = await speak(await gate.tls(), head('GET'));
  expect(untyped).toContain(P);
  expect(untyped).not.toContain(VALUE);
  expect(await speak(await gate.tls(), head('TRACE'))).toMatch(/^HTTP\/1.1 403 [^]*secret_policy_denied/);
  expect(seen).toHaveLength(1);
  const part = await open([SECRET], (response, { headers }) => {
    response.writeHead(206, { 'content-type': 'text/plain', 'content-range': 'bytes 0-3/9' });
    response.end(String(headers['x-key']).slice(0, 10));
  });
  expect(await speak(await part.gate.tls(), head('GET'))).not.toContain(VALUE.slice(0, 10));
});

it('gives no value to the host of a redirect', async () => {
  const first = await open(
    [SECRET],
    (response) => void response.writeHead(307, { location: 'https://evil.example/' }).end(),
  );
  const redirect = await speak(await first.gate.tls(), `GET / HTTP/1.1\nX-Key: ${P}`);
  expect(redirect).toMatch(/^HTTP\/1.1 307 [^]*location: https:\/\/evil.example\//i);
  const second = await open([SECRET], undefined, { name: 'evil.example' });
  const socket = await second.gate.tls();
  // A client follows with the fields that it has: the placeholder.
  socket.write(`GET / HTTP/1.1\r\nHost: evil.example\r\nX-Key: ${P}\r\nConnection: close\r\n\r\n`);
  expect(String(await buffer(socket))).toMatch(/^HTTP\/1.1 403 /);
  expect(second.seen).toEqual([]);
});

it('puts the placeholder in place of echoes, in headers, texts and JSON', async () => {
  const { gate } = await open([SECRET], (response, { line }) => {
    const text = `{"seen":"${VALUE}"}`;
    response.writeHead(200, `OK ${VALUE}`, {
      'content-type': line.includes('/bytes')
        ? 'application/octet-stream'
        : 'application/json; charset=utf-8',
      'content-length': text.length,
      'x-echo': `a ${VALUE}`,
    });
    response.write(text.slice(0, 15));
    setTimeout(() => response.end(text.slice(15)), 20);
  });
  const answer = await speak(await gate.tls(), `GET / HTTP/1.1\nX-Key: ${P}`);
  expect(answer).not.toContain(VALUE);
  expect(answer).toContain(`x-echo: a ${P}`);
  expect(answer.split(/\r\n(?:[0-9a-f]+\r\n)?/).join('')).toContain(P);
  expect(await speak(await gate.tls(), 'GET /bytes HTTP/1.1')).toContain(`{"seen":"${VALUE}"}`);
});

/** A server that answers each stream, and a gateway for a sandbox with the secret. */
async function openHttp2(answer: (stream: ServerHttp2Stream, headers: IncomingHttpHeaders) => void) {
  const server = createSecureServer(identity());
  server.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    answer(stream, headers);
  });
  return openGate({ port: await listen(server), secrets: [SECRET], protocols: ['h2'] });
}

const CODINGS: [coding: string, encode: ((text: string) => Buffer) | undefined][] = [
  ['gzip', zlib.gzipSync],
  ['X-GZIP', zlib.gzipSync],
  ['identity, deflate', zlib.deflateSync],
  ['br', zlib.brotliCompressSync],
  ['zstd', (zlib as { zstdCompressSync?: (text: string) => Buffer }).zstdCompressSync],
  ['gzip, gzip', undefined],
  ['unknown', undefined],
];

it('reads a compressed answer that nobody asked for, and refuses one that it cannot read', async () => {
  let coding = '';
  let compressed: Buffer = Buffer.alloc(0);
  const { gate, seen } = await open([SECRET], (response, { line }) => {
    const type = line.includes('/bytes') ? 'application/octet-stream' : 'text/plain';
    response.writeHead(200, { 'content-type': type, 'content-encoding': coding });
    response.end(line.startsWith('HEAD') ? '' : compressed);
  });
  const other = await openHttp2((stream, headers) => {
    stream.respond({ 'content-type': 'text/plain', 'content-encoding': coding });
    stream.end(headers[':method'] === 'HEAD' ? '' : compressed);
  });
  const socket = await other.tls(['h2']);
  const session = connect(`https://${NAME}`, { createConnection: () => socket });
  onTestFinished(() => session.destroy());
  for (const [name, encode] of CODINGS) {
    coding = name;
    compressed = encode?.(`the value is ${VALUE}`) ?? Buffer.from('anything');
    const first = await speak(await gate.tls(), `GET / HTTP/1.1\nX-Key: ${P}\nAccept-Encoding: ${name}`);
    const stream = session.request({ ':path': '/', 'x-key': P });
    const [second] = (await once(stream, 'response')) as [IncomingHttpHeaders];
    const text = String(await buffer(stream));
    if (encode) {
      expect(first, name).toMatch(/^HTTP\/1.1 200 /);
      expect(first).toContain(`the value is ${P}`);
      expect(first).not.toMatch(/content-encoding/i);
      expect([second[':status'], second['content-encoding'], text]).toEqual([
        200,
        undefined,
        `the value is ${P}`,
      ]);
    } else {
      expect(first, name).toMatch(/^HTTP\/1.1 502 [^]*"upstream_failed"[^]*content coding/);
      expect([second[':status'], JSON.parse(text)]).toMatchObject([502, { code: 'upstream_failed' }]);
    }
    // Neither has a text.
    for (const line of ['HEAD / HTTP/1.1', 'GET /bytes HTTP/1.1'])
      expect(await speak(await gate.tls(), line)).toContain(`content-encoding: ${name}\r\n`);
  }
  expect(seen[0]!.headers['accept-encoding']).toBe('identity');
});

it('ends a compressed answer that is broken, cut, or becomes too long', async () => {
  const plain = Buffer.from(`the value is ${VALUE}`.repeat(1_000));
  const bomb = zlib.gzipSync(Buffer.alloc(64 * MIB));
  const cases: [compressed: Buffer, most: number][] = [
    [Buffer.from('no gzip'), 0],
    [zlib.gzipSync(plain).subarray(0, -20), plain.length],
    [bomb, 16 * MIB],
  ];
  for (const [compressed, most] of cases) {
    const { gate } = await open([SECRET], (response) => {
      response.writeHead(200, { 'content-type': 'text/plain', 'content-encoding': 'gzip' });
      response.end(compressed);
    });
    const answer = await speak(await gate.tls(), `GET / HTTP/1.1\nX-Key: ${P}`).catch(() => '');
    expect(answer.length).toBeLessThan(most + 65_536);
    // The last chunk is missing, so no client takes it for a whole answer.
    expect(answer).not.toMatch(/\r\n0\r\n\r\n$/);
    expect(answer).not.toContain(VALUE);
  }
});

it('lets no value break out of a header', async () => {
  const { gate, seen } = await open([
    { ...SECRET, value: 'a\r\nx-more: 1' },
    { ...SECRET, name: 'B', placeholder: '$MSB_B', value: 'é€' },
  ]);
  expect(await speak(await gate.tls(), `GET / HTTP/1.1\nX-Key: ${P}`)).toMatch(
    /^HTTP\/1.1 403 [^]*line break/,
  );
  expect(await speak(await gate.tls(), 'GET / HTTP/1.1\nX-Key: $MSB_B')).toMatch(/^HTTP\/1.1 200 /);
  expect(seen.map(({ headers }) => Buffer.from(headers['x-key'] as string, 'latin1').toString())).toEqual([
    'é€',
  ]);
});

it('puts the value into headers of HTTP/2 and WebSocket requests, and into no body of HTTP/2', async () => {
  const bodies: string[] = [];
  const server = createSecureServer(identity());
  server.on('stream', (stream, headers) => {
    stream.on('error', () => {});
    stream.on('data', (part: Buffer) => bodies.push(part.toString()));
    stream.on('end', () => {
      if (stream.destroyed) return;
      stream.respond({
        ':status': 200,
        'content-type': 'text/plain',
        'x-path': headers[':path'],
        'content-length': VALUE.length,
      });
      stream.end(headers['x-key'] as string);
    });
  });
  const gate = await openGate({ port: await listen(server), secrets: [SECRET], protocols: ['h2'] });
  const socket = await gate.tls(['h2']);
  const session = connect(`https://${NAME}`, { createConnection: () => socket });
  onTestFinished(() => session.destroy());
  const ask = async (body?: string) => {
    const headers = { ':path': `/?k=${encodeURIComponent(P)}`, ':method': 'POST', 'x-key': P };
    const stream = session.request(headers, { endStream: body === undefined });
    if (body !== undefined) stream.end(body);
    const [answered] = (await once(stream, 'response')) as [IncomingHttpHeaders];
    return [answered[':status'], answered['x-path'], String(await buffer(stream))];
  };
  expect(await ask('plain')).toEqual([200, `/?k=${P}`, P]);
  const [status, , text] = await ask(`a ${P}`);
  expect([status, JSON.parse(text as string)]).toMatchObject([403, { code: 'secret_policy_denied' }]);
  expect(bodies).toEqual(['plain']);
  expect(gate.flow.secrets).toContain('TOKEN');
  const upgraded = createServer(identity());
  let key: string | undefined;
  upgraded.on('upgrade', (request, upgradedSocket) => {
    key = request.headers['x-key'] as string;
    upgradedSocket.end(
      'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
    );
  });
  const other = await openGate({ port: await listen(upgraded), secrets: [SECRET] });
  const answer = await speak(
    await other.tls(),
    `GET / HTTP/1.1\nUpgrade: websocket\nConnection: Upgrade\nX-Key: ${P}`,
  );
  expect([answer.slice(0, 12), key]).toEqual(['HTTP/1.1 101', VALUE]);
});

it('uses the latest value of a secret on a connection that is open', async () => {
  const { gate, seen } = await open([SECRET]);
  const socket = await gate.tls();
  const ask = async () => {
    socket.write(`GET / HTTP/1.1\r\nHost: ${NAME}\r\nX-Key: ${P}\r\n\r\n`);
    await once(socket, 'data');
  };
  await ask();
  gate.change({ secrets: [{ ...SECRET, value: 'the next value' }] });
  await ask();
  expect(seen.map(({ headers }) => headers['x-key'])).toEqual([VALUE, 'the next value']);
});
