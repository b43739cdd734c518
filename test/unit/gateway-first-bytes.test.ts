import { connect as connectTls } from 'node:tls';
import { once } from 'node:events';
import { createServer } from 'node:net';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { classify, LONGEST_FIRST_BYTES, type FirstBytes } from '../../src/gateway/connections/first-bytes.js';
import { readHost } from '../../src/gateway/connections/http-head.js';
import { clientHello, record } from '../support/gateway-front.js';
import { cpuTime } from '../support/cpu-time.js';

const read = (bytes: Buffer | string, isAll = false) =>
  classify(typeof bytes === 'string' ? Buffer.from(bytes, 'latin1') : bytes, isAll);

/** Nothing shorter may have another meaning. */
function expectAtEnd(bytes: Buffer, expected: FirstBytes): void {
  for (let length = 0; length < bytes.length; length += 1)
    expect(read(bytes.subarray(0, length)), `${length} bytes`).toBe('more');
  expect(read(bytes)).toEqual(expected);
}

describe('a TLS ClientHello', () => {
  const MESSAGE = clientHello('a.example').subarray(5);

  it('has the name of its server, in one record or in many', () => {
    const whole = clientHello('A.Example');
    expectAtEnd(whole, { kind: 'tls', name: 'a.example', protocols: [], end: whole.length });
    for (const most of [1, 2, 3, 5, 100]) {
      const split = record(MESSAGE, most);
      expectAtEnd(split, { kind: 'tls', name: 'a.example', protocols: [], end: split.length });
    }
  });

  it('has no more records than a gateway can read again and again', () => {
    const long = clientHello('a.example', Buffer.concat([Buffer.from('00150200', 'hex'), Buffer.alloc(512)]));
    expect(read(long)).toMatchObject({ name: 'a.example' });
    expect(read(record(long.subarray(5), 1))).toMatchObject({ kind: 'broken', protocol: 'tls' });
  });

  it('may have no name, or an address', () => {
    expect(read(clientHello(undefined))).toMatchObject({ kind: 'tls', name: undefined });
    expect(read(clientHello('192.0.2.1'))).toMatchObject({ kind: 'tls', name: '192.0.2.1' });
  });

  it('may have GREASE and an encrypted hello: the outer name counts', () => {
    const grease = Buffer.from('1a1a0000', 'hex');
    const ech = Buffer.concat([Buffer.from('fe0d0008', 'hex'), Buffer.alloc(8)]);
    expect(read(clientHello('a.example', Buffer.concat([grease, ech])))).toMatchObject({ name: 'a.example' });
  });

  it('is broken when its name could be read in two ways', () => {
    const second = Buffer.concat([Buffer.from('0000000e000c000009', 'hex'), Buffer.from('b.example')]);
    const broken: [string, Buffer][] = [
      ['two names', clientHello('a.example', second)],
      ['a byte that ends strings', clientHello('a.example\0.b.example')],
      ['no ASCII', clientHello('bücher.example')],
      ['an empty name', clientHello('')],
      ['a space', clientHello('a .example')],
      ['an extension that is cut', clientHello('a.example', Buffer.from('1a1a0005', 'hex'))],
      ['another message in the record', record(Buffer.concat([MESSAGE, Buffer.from([0])]))],
      ['no ClientHello', record(Buffer.concat([Buffer.from([2]), MESSAGE.subarray(1)]))],
      [
        'a record of another type in between',
        Buffer.concat([record(MESSAGE.subarray(0, 9)), Buffer.from([23, 3, 1, 0, 1, 0])]),
      ],
      ['an empty record', Buffer.from([22, 3, 1, 0, 0])],
      ['SSL 2 in a record', Buffer.from([22, 3, 9, 0, 1, 1])],
    ];
    for (const [what, bytes] of broken)
      expect(read(bytes), what).toMatchObject({ kind: 'broken', protocol: 'tls' });
  });

  it('is bounded', () => {
    const long = Buffer.concat([Buffer.from([1, 0, 0x40, 0]), Buffer.alloc(16_384)]);
    expect(read(record(long, 100))).toMatchObject({ kind: 'broken' });
    expect(read(clientHello('a.example').subarray(0, 20), true)).toMatchObject({
      kind: 'broken',
      protocol: 'tls',
    });
  });

  it('is understood when Node sends it, with each version of TLS', async () => {
    for (const version of ['TLSv1', 'TLSv1.1', 'TLSv1.2', 'TLSv1.3'] as const) {
      const server = createServer();
      server.listen(0, '127.0.0.1');
      await once(server, 'listening');
      const { port } = server.address() as { port: number };
      const client = connectTls({
        port,
        host: '127.0.0.1',
        servername: 'node.example',
        minVersion: version,
        maxVersion: version,
        ALPNProtocols: ['h2', 'http/1.1'],
        ciphers: 'DEFAULT@SECLEVEL=0',
      });
      client.on('error', () => {});
      const [socket] = await once(server, 'connection');
      const [bytes] = await once(socket, 'data');
      expect(read(bytes), version).toMatchObject({
        kind: 'tls',
        name: 'node.example',
        protocols: ['h2', 'http/1.1'],
        end: bytes.length,
      });
      client.destroy();
      server.close();
    }
  });

  it('never throws, whatever the bytes', () => {
    const valid = clientHello('a.example', Buffer.from('1a1a0000', 'hex'));
    const holds = fc.property(
      fc.nat(valid.length - 1),
      fc.nat(255),
      fc.nat(valid.length),
      (at, byte, length) => {
        const bytes = Buffer.from(valid);
        bytes[at] = byte;
        const found = read(bytes.subarray(0, length), true);
        return found !== 'more' && (found.kind !== 'tls' || length === valid.length);
      },
    );
    expect(fc.defaultReportMessage(fc.check(holds, { numRuns: 5_000 }))).toBeUndefined();
  });
});

describe('a request of HTTP', () => {
  const NAMED = { kind: 'http', name: 'a.example', isTunnel: false } as const;

  it('has the name of its host', () => {
    expectAtEnd(Buffer.from('GET / HTTP/1.1\r\nHost: A.Example\r\n\r\n'), NAMED);
    for (const request of [
      '\r\n\r\nGET / HTTP/1.1\r\nhOsT:\ta.example:8080 \r\n\r\n',
      'get /http/ HTTP/1.1\r\nhost:a.example.\r\nX: y\r\n\r\nbody',
      'ODD! * HTTP/1.1\r\nA: \xe9\r\nHost: a.example\r\n\r\n',
      'GET http://a.example:80/x HTTP/1.1\r\nHost: a.example\r\n\r\n',
      'GET HTTP://A.EXAMPLE HTTP/1.0\r\n\r\n',
    ])
      expect(read(request), request).toEqual(NAMED);
    expect(read('GET / HTTP/1.0\r\n\r\n')).toEqual({ ...NAMED, name: undefined });
    expect(read('GET / HTTP/1.1\r\nHost:\r\n\r\n')).toEqual({ ...NAMED, name: undefined });
    expect(read('GET / HTTP/1.1\r\nHost: 192.0.2.1:80\r\n\r\n')).toEqual({ ...NAMED, name: '192.0.2.1' });
    expect(read('CONNECT b.example:443 HTTP/1.1\r\nHost: a.example\r\n\r\n')).toEqual({
      kind: 'http',
      name: 'b.example',
      isTunnel: true,
    });
  });

  it('is broken when servers could understand it in two ways', () => {
    for (const request of [
      'GET / HTTP/1.1\r\n\r\n',
      'GET / HTTP/1.1\r\nHost: a.example\r\nHost: a.example\r\n\r\n',
      'GET / HTTP/1.1\r\nHost: a.example\r\nhost: b.example\r\n\r\n',
      'GET / HTTP/1.1\r\nHost: a.example\r\n b.example\r\n\r\n',
      'GET / HTTP/1.1\r\n Host: a.example\r\n\r\n',
      'GET / HTTP/1.1\r\nHost : a.example\r\n\r\n',
      'GET / HTTP/1.1\r\nHost: a.example, b.example\r\n\r\n',
      'GET / HTTP/1.1\r\nHost: a.example@b.example\r\n\r\n',
      'GET / HTTP/1.1\r\nHost: a.example:http\r\n\r\n',
      'GET / HTTP/1.1\r\nHost: a.example:99999\r\n\r\n',
      'GET / HTTP/1.1\r\nHost: a.example/\r\n\r\n',
      'GET / HTTP/1.1\r\nX\r\nHost: a.example\r\n\r\n',
      'GET / HTTP/1.1\r\nX: \0\r\nHost: a.example\r\n\r\n',
      'GET / HTTP/1.1\nHost: a.example\n\n',
      'GET / HTTP/1.1\r\nX: y\nHost: a.example\r\n\r\n',
      'GET / HTTP/1.1\r\nX: y\rHost: a.example\r\n\r\n',
      'GET http://b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n',
      'GET http://a.example@b.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n',
      'GET ftp://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n',
      'GET a.example HTTP/1.1\r\nHost: a.example\r\n\r\n',
      'CONNECT /x HTTP/1.1\r\nHost: a.example\r\n\r\n',
      'GET  / HTTP/1.1\r\nHost: a.example\r\n\r\n',
      'GET\t/ HTTP/1.1\r\nHost: a.example\r\n\r\n',
      ' GET / HTTP/1.1\r\nHost: a.example\r\n\r\n',
      'GET / x HTTP/1.1\r\nHost: a.example\r\n\r\n',
      'GET / HTTP/1.2\r\nHost: a.example\r\n\r\n',
      'GET / http/1.1\r\nHost: a.example\r\n\r\n',
      'GET / HTTP/2.0\r\nHost: a.example\r\n\r\n',
      'G(T / HTTP/1.1\r\nHost: a.example\r\n\r\n',
      'GET /\r\n',
      'GET / \r\n\r\n',
    ])
      expect(read(request), JSON.stringify(request)).toMatchObject({ kind: 'broken', protocol: 'http' });
  });

  it('is bounded in length and in time', async () => {
    expect(read('GET')).toBe('more');
    expect(read('GET', true)).toMatchObject({ kind: 'broken', protocol: 'http' });
    const long = `GET / HTTP/1.1\r\nHost: a.example\r\nX: ${' '.repeat(LONGEST_FIRST_BYTES)}y`;
    const taken = await cpuTime(() => {
      expect(read(long)).toMatchObject({ kind: 'broken' });
      expect(read(`${long.slice(0, 16_000)}y\r\n\r\n`)).toEqual(NAMED);
    });
    // A scan in quadratic time takes a second.
    expect(taken).toBeLessThan(300);
  });

  it('has no name that the gateway reads with HTTP/2 in clear', () => {
    expectAtEnd(Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), { kind: 'http2' });
  });
});

describe('another protocol', () => {
  it('is told by its first line, or by its first byte that HTTP does not have', () => {
    for (const bytes of [
      'SSH-2.0-OpenSSH_9.6 Ubuntu\r\n',
      'AMQP\0\0\x09\x01',
      '\0\0\0\x08\x04\xd2\x16\x2f',
      '*1\r\n$4\r\nPING\r\n',
      'EHLO x.example\r\n',
      '\x80\x2e\x01\0\x02',
      'x'.repeat(65),
      'getting started\r\n',
    ])
      expect(read(bytes), JSON.stringify(bytes)).toEqual({ kind: 'other' });
    // It may still become a request.
    expect(read('SSH-2.0-x y')).toBe('more');
    expect(read('', true)).toEqual({ kind: 'other' });
  });
});

it('reads hosts', () => {
  expect(readHost('[::1]:80')).toEqual({ name: '::1', port: 80 });
  expect(readHost('[::1')).toBeUndefined();
  expect(readHost('a.example:')).toBeUndefined();
  expect(readHost('under_score.example')).toEqual({ name: 'under_score.example', port: undefined });
});
