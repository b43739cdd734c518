import { once } from 'node:events';
import { createServer as createHttpServer } from 'node:http';
import { connect as connectHttp2, createServer as createHttp2Server } from 'node:http2';
import { text } from 'node:stream/consumers';
import { connect as connectTls, createServer as createTlsServer } from 'node:tls';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterEach, describe, expect, it } from 'vitest';
import type { RequestForwarder } from '../../src/gateway/connections/hand-over.js';
import { Interceptor } from '../../src/gateway/intercept/intercept.js';
import type { Rule } from '../../src/network-policy/schema.js';
import { Authority } from '../support/certificates.js';
import { until } from '../support/polling.js';
import { clientHello, Front, OTHER_SANDBOX, outcomeOf, settingsOf } from '../support/gateway-front.js';

const SERVER = '127.2.0.1';
const GOOD: Rule = { direction: 'egress', destination: { domain: 'good.example' }, action: 'allow' };
/** A busy machine sends the first bytes late. */
const PATIENT = { firstBytesMs: 30_000, serverFirstMs: 10_000 };
const HURRIED = { firstBytesMs: 1_000, serverFirstMs: 200 };
const GET = (host: string) => `GET / HTTP/1.1\r\nHost: ${host}\r\n\r\n`;

let front: Front;
afterEach(() => front.close());

function open(
  rules: Rule[],
  changes: Parameters<typeof settingsOf>[1] = {},
  forwarder?: RequestForwarder,
  waits = PATIENT,
): void {
  front = new Front({ forwarder, waits });
  front.table.set(settingsOf({ default_egress: 'deny', rules }, changes));
}

/** Answers the first bytes of each connection with themselves. */
async function serveEcho(port: number, address = SERVER): Promise<Buffer[]> {
  const got: Buffer[] = [];
  await front.serveRaw(address, port, (socket) => {
    socket.on('data', (chunk: Buffer) => {
      got.push(chunk);
      socket.write(chunk);
    });
    socket.on('end', () => socket.end());
  });
  return got;
}

async function send(
  port: number,
  bytes: Buffer | string,
  from?: string,
): Promise<ReturnType<typeof outcomeOf>> {
  const socket = await front.connect(SERVER, port, from).catch(() => undefined);
  if (!socket) return { text: '', end: 'reset' };
  socket.write(bytes);
  const outcome = outcomeOf(socket);
  // Allowed: the echo has come.
  socket.once('data', () => socket.end());
  return outcome;
}

describe('a strict connection by TLS', () => {
  it('passes for a name that the sandbox resolved to the address, and for no neighbour', async () => {
    open([GOOD]);
    const got = await serveEcho(443);
    front.bind('good.example', SERVER);
    front.bind('neighbour.example', SERVER);
    const hello = clientHello('good.example');
    expect((await send(443, hello)).text).toBe(hello.toString('latin1'));
    const count = got.length;
    for (const bytes of [
      clientHello('neighbour.example'),
      clientHello('sub.good.example'),
      clientHello(undefined),
      clientHello(SERVER),
      'SSH-2.0-x\r\n',
      '\x80\x2e\x01\x00\x02',
    ])
      expect(await send(443, bytes)).toEqual({ text: '', end: 'reset' });
    expect(got.length).toBe(count);
    expect(front.denials.map(({ name }) => name)).toEqual([
      'neighbour.example',
      'sub.good.example',
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
    expect(front.denials[0]).toMatchObject({
      sandbox: 'sandbox',
      kind: 'connection',
      protocol: 'tls',
      address: SERVER,
      port: 443,
      rule: 'default',
      reason: 'no rule of the network policy allows it',
    });
    expect(front.flows.report()).toMatchObject([
      {
        name: 'good.example',
        address: SERVER,
        port: 443,
        rule: 0,
        connections: 1,
        sentBytes: hello.length,
        receivedBytes: hello.length,
      },
    ]);
  });

  it('is refused for a name that the sandbox did not resolve to the address', async () => {
    open([GOOD]);
    await serveEcho(443);
    front.bind('good.example', '127.2.0.9');
    expect((await send(443, clientHello('good.example'))).end).toBe('reset');
    expect(front.denials[0]!.reason).toContain('did not resolve the name to this address');
  });

  it('belongs to one sandbox: a name of another one does not count', async () => {
    open([GOOD]);
    front.table.set(settingsOf({ rules: [GOOD] }, { id: 'other', orgId: 'other', address: OTHER_SANDBOX }));
    await serveEcho(443);
    front.bind('good.example', SERVER, 'other');
    expect((await send(443, clientHello('good.example'))).end).toBe('reset');
    expect((await send(443, clientHello('good.example'), OTHER_SANDBOX)).end).toBe('end');
    expect((await send(443, clientHello('good.example'), '127.1.0.3')).end).toBe('reset');
  });

  it('passes by a rule for its address too, but not for a name that a rule denies', async () => {
    open([
      { direction: 'egress', destination: { domain_suffix: 'evil.example' }, action: 'deny' },
      { direction: 'egress', destination: { cidr: '127.2.0.0/16' }, action: 'allow' },
    ]);
    await serveEcho(443);
    for (const name of ['any.example', undefined, SERVER])
      expect((await send(443, clientHello(name))).end, name).toBe('end');
    // Also without a query for the name.
    expect((await send(443, clientHello('x.evil.example'))).end).toBe('reset');
    expect(front.denials[0]).toMatchObject({ rule: 0, reason: 'the network policy denies it' });
    front.bind('evil.example', SERVER);
    // It may be for any name of the address.
    expect((await send(443, clientHello(undefined))).end).toBe('reset');
  });

  it('may come in fragments, but not too slowly', async () => {
    open([GOOD]);
    await serveEcho(443);
    front.bind('good.example', SERVER);
    const hello = clientHello('good.example');
    const quick = await front.connect(SERVER, 443);
    for (const byte of hello) {
      quick.write(Buffer.from([byte]));
      await sleep(1);
    }
    let length = 0;
    while (length < hello.length) length += ((await once(quick, 'data')) as Buffer[])[0]!.length;
    front.close();
    open([GOOD], {}, undefined, HURRIED);
    const slow = await front.connect(SERVER, 443);
    slow.write(hello.subarray(0, 50));
    expect(await outcomeOf(slow)).toEqual({ text: '', end: 'reset' });
    expect(front.denials[0]!.reason).toContain('too slowly');
  });

  it('cannot change its name in a second ClientHello', async () => {
    open([GOOD]);
    front.bind('good.example', SERVER);
    const retry = Buffer.concat([
      Buffer.from([22, 3, 3, 0, 38, 2, 0, 0, 34, 3, 3]),
      Buffer.from('cf21ad74e59a6111be1d8c021e65b891c2a211167abb8c5e079e09e2c8a8339c', 'hex'),
    ]);
    const got: string[] = [];
    await front.serveRaw(SERVER, 443, (socket) => {
      const position = got.push('') - 1;
      socket.once('data', () => {
        socket.write(retry.subarray(0, 20));
        setTimeout(() => socket.write(retry.subarray(20)), 20);
      });
      socket
        .on('data', (chunk: Buffer) => (got[position] += chunk.toString('latin1')))
        .on('end', () => socket.end());
    });
    const first = clientHello('good.example');
    const early = Buffer.from([20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 2, 9, 9]);
    const whole = Buffer.concat([first, early, first]).toString('latin1');
    const again = async (second: Buffer, isAtOnce: boolean, passes: boolean) => {
      const socket = await front.connect(SERVER, 443);
      const outcome = outcomeOf(socket);
      socket.write(isAtOnce ? Buffer.concat([first, early, second]) : first);
      await once(socket, 'data');
      if (!isAtOnce) socket.write(Buffer.concat([early, second]));
      if (passes) {
        await until(
          () => Promise.resolve(got.at(-1)!),
          (text) => text.length >= whole.length,
        );
        socket.end();
      }
      return (await outcome).end;
    };
    for (const isAtOnce of [true, false]) {
      expect(await again(clientHello('good.example'), isAtOnce, true)).toBe('end');
      expect(got.at(-1)).toBe(whole);
      expect(await again(clientHello('neighbour.example'), isAtOnce, false)).toBe('reset');
      expect(got.at(-1)).toBe(first.toString('latin1'));
    }
  });

  it('works for real clients and servers, with the authority of the server', async () => {
    open([GOOD]);
    front.bind('good.example', SERVER);
    const authority = new Authority();
    const { cert, key } = authority.issue({ names: ['good.example'] });
    for (const version of ['TLSv1.2', 'TLSv1.3'] as const) {
      // The server takes another curve than the first of the client, so it asks for a second hello.
      const server = createTlsServer({ cert, key, maxVersion: version, ecdhCurve: 'P-256' }, (socket) =>
        socket.pipe(socket),
      );
      await front.serve(SERVER, 443, server);
      const socket = connectTls({
        socket: await front.connect(SERVER, 443),
        servername: 'good.example',
        ca: authority.root,
        ecdhCurve: 'X25519:P-256:P-384',
      });
      await once(socket, 'secureConnect');
      socket.write('hello');
      const [answer] = await once(socket, 'data');
      expect(String(answer)).toBe('hello');
      socket.destroy();
    }
  });
});

/** The forwarder of the gateway, in this network. */
function forwarder(): RequestForwarder {
  const interceptor = new Interceptor({ denials: { add: (denial) => front.denials.push(denial) } });
  return {
    isNeeded: () => false,
    handle: (socket, to) =>
      interceptor.handle(socket, { ...to, port: front.upstreamOf(to.address, to.port) }),
  };
}

describe('a strict connection by HTTP', () => {
  it('is refused with words and the domain', async () => {
    open([GOOD]);
    front.bind('bad.example', SERVER);
    for (const port of [80, 8_080]) {
      const { text: all, end } = await send(port, GET('bad.example'));
      const [head, body] = all.split('\r\n\r\n');
      expect(head).toContain('HTTP/1.1 403 Forbidden\r\nContent-Type: application/json');
      expect(JSON.parse(body!)).toEqual({
        code: 'network_policy_denied',
        message:
          'the network policy of the sandbox refuses this connection: no rule of the network policy allows it',
        domain: 'bad.example',
      });
      expect(end).toBe('end');
    }
    expect(front.denials[0]).toMatchObject({
      kind: 'request',
      protocol: 'http',
      name: 'bad.example',
      port: 80,
    });
    const twice = await send(80, 'GET / HTTP/1.1\r\nHost: good.example\r\nHost: bad.example\r\n\r\n');
    expect(twice.text).toContain('two Host headers');
  });

  it('reaches its client also when that sends a long body', async () => {
    open([GOOD]);
    const socket = await front.connect(SERVER, 80);
    const outcome = outcomeOf(socket);
    socket.write('POST / HTTP/1.1\r\nHost: bad.example\r\nContent-Length: 5000000\r\n\r\n');
    socket.write(Buffer.alloc(5_000_000));
    expect((await outcome).text).toContain('403');
  });

  it('is handed over with its first bytes, so that each further request is checked', async () => {
    const taken: [string, boolean][] = [];
    open(
      [GOOD],
      {},
      {
        isNeeded: () => false,
        handle: (socket, { name, encrypted }) => {
          taken.push([name, encrypted]);
          socket.pipe(socket);
        },
      },
    );
    front.bind('good.example', SERVER);
    expect((await send(80, GET('good.example'))).text).toBe(GET('good.example'));
    expect(taken).toEqual([['good.example', false]]);
    expect(front.flows.report()).toMatchObject([{ name: 'good.example', connections: 1 }]);
  });

  it('is checked at each request of the connection, by the parser that forwards it', async () => {
    open([GOOD], {}, forwarder());
    front.bind('good.example', SERVER);
    front.bind('bad.example', SERVER);
    const hosts: string[] = [];
    const server = createHttpServer((request, response) => {
      hosts.push(String(request.headers.host));
      request.resume().on('end', () => response.end('answer'));
    });
    server.on('upgrade', (_request, socket) => {
      socket.write('HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
      socket.pipe(socket);
    });
    await front.serve(SERVER, 80, server);
    const body = 'GET / HTTP/1.1\r\nHost: bad.example\r\n\r\n';
    const post = `POST / HTTP/1.1\r\nHost: good.example\r\nContent-Length: ${body.length}\r\n\r\n${body}`;
    // The second request comes with the first one, and later.
    for (const isAtOnce of [true, false]) {
      const socket = await front.connect(SERVER, 80);
      const outcome = outcomeOf(socket);
      let answers = '';
      socket.on('data', (chunk: Buffer) => (answers += chunk.toString('latin1')));
      socket.write(isAtOnce ? post + GET('bad.example') : post);
      await once(socket, 'data');
      if (!isAtOnce) socket.write(GET('bad.example'));
      await until(
        () => Promise.resolve(answers),
        (found) => found.includes('HTTP/1.1 403'),
      );
      socket.end();
      const { text } = await outcome;
      expect(text.match(/HTTP\/1.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 403']);
    }
    expect(hosts).toEqual(['good.example', 'good.example']);
    expect(front.denials).toMatchObject([{ name: 'bad.example' }, { name: 'bad.example' }]);
    const socket = await front.connect(SERVER, 80);
    socket.write('GET / HTTP/1.1\r\nHost: good.example\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n');
    expect(String((await once(socket, 'data'))[0])).toContain('101 Switching');
    socket.write('frames');
    expect(String((await once(socket, 'data'))[0])).toBe('frames');
  });

  it('is checked at each request of HTTP/2 too', async () => {
    open([GOOD], {}, forwarder());
    front.bind('good.example', SERVER);
    front.bind('bad.example', SERVER);
    const hosts: unknown[] = [];
    const server = createHttp2Server().on('stream', (stream, headers) => {
      hosts.push(headers[':authority']);
      stream.respond();
      stream.end('answer');
    });
    await front.serve(SERVER, 50_051, server);
    const socket = await front.connect(SERVER, 50_051);
    const client = connectHttp2('http://good.example', { createConnection: () => socket });
    const get = async (authority: string) => {
      const stream = client.request({ ':authority': authority });
      const [headers] = (await once(stream, 'response')) as [Record<string, unknown>];
      return [headers[':status'], await text(stream)];
    };
    expect(await get('good.example:50051')).toEqual([200, 'answer']);
    expect(await get('bad.example')).toEqual([421, expect.stringContaining('network_policy_denied')]);
    expect(await get('good.example')).toEqual([200, 'answer']);
    expect(hosts).toEqual(['good.example:50051', 'good.example']);
    client.destroy();
  });

  it('cannot reach an allowed name through a tunnel of another machine', async () => {
    open([GOOD]);
    front.bind('good.example', SERVER);
    const { text } = await send(80, 'CONNECT good.example:443 HTTP/1.1\r\nHost: good.example\r\n\r\n');
    expect(text).toContain('403');
    const h2 = await send(8_080, 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
    expect(h2).toEqual({ text: '', end: 'reset' });
  });
});

it('waits for a slow client on a port that is intercepted, also without strict', async () => {
  const tls = { ...settingsOf({}).tls, enabled: true, ports: [8_443] };
  open(
    [{ direction: 'egress', destination: 'any', action: 'allow' }],
    { strict: false, tls },
    { isNeeded: () => true, handle: (socket) => socket.resume().end('decrypted') },
    { ...PATIENT, serverFirstMs: 200 },
  );
  const slow = await front.connect(SERVER, 8_443);
  await sleep(400);
  slow.write(clientHello('good.example'));
  expect((await outcomeOf(slow)).text).toBe('decrypted');
  // Nothing else can be decrypted.
  expect((await send(8_443, 'SSH-2.0-x\r\n')).end).toBe('reset');
});

describe('a strict connection by another protocol', () => {
  it('passes on other ports by the names of its address', async () => {
    open([GOOD]);
    await serveEcho(22);
    expect((await send(22, 'SSH-2.0-x\r\n')).end).toBe('reset');
    front.bind('good.example', SERVER);
    expect(await send(22, 'SSH-2.0-x\r\n')).toEqual({ text: 'SSH-2.0-x\r\n', end: 'end' });
    expect(front.flows.report()).toMatchObject([{ name: 'good.example', port: 22 }]);
  });

  it('may let its server speak first, but TLS and HTTP are judged also when they come late', async () => {
    open([GOOD], {}, undefined, { ...PATIENT, serverFirstMs: 200 });
    front.bind('good.example', SERVER);
    const got: string[] = [];
    await front.serveRaw(SERVER, 25, (socket) => {
      socket.write('220 hello\r\n');
      socket.on('data', (chunk: Buffer) => got.push(chunk.toString('latin1'))).on('end', () => socket.end());
    });
    const late = async (bytes: string | Buffer) => {
      const socket = await front.connect(SERVER, 25);
      await once(socket, 'data');
      const outcome = outcomeOf(socket);
      socket.write(bytes);
      await sleep(100);
      socket.end();
      return (await outcome).end;
    };
    expect(
      await Promise.all([
        late('EHLO x\r\n'),
        late(GET('neighbour.example')),
        late(GET('good.example')),
        late(clientHello('neighbour.example')),
      ]),
    ).toEqual(['end', 'reset', 'reset', 'reset']);
    expect(got).toEqual(['EHLO x\r\n']);
    front.close();
    open([GOOD], {}, undefined, HURRIED);
    const silent = await front.connect(SERVER, 443);
    expect(await outcomeOf(silent)).toEqual({ text: '', end: 'reset' });
  });
});

it('bounds the connections of an organization, whose neighbours still connect', async () => {
  open([GOOD], {}, undefined, { ...PATIENT, firstBytesMs: 2_000 });
  front.table.set(settingsOf({ rules: [GOOD] }, { id: 'other', orgId: 'other', address: OTHER_SANDBOX }));
  await serveEcho(443);
  front.bind('good.example', SERVER, 'other');
  const ends = Array.from({ length: 600 }, async () => outcomeOf(await front.connect(SERVER, 443)));
  // So many may send no first bytes. The others are reset, some while they connect.
  await Promise.allSettled(ends.slice(512));
  expect((await send(443, clientHello('good.example'), OTHER_SANDBOX)).end).toBe('end');
});
