import { Buffer } from 'node:buffer';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { decode, streamDecode, streamEncode, type Answer } from 'dns-packet';
import type { ConnectionListener, Guest, GuestFiles } from '../../src/guest/guest.js';
import { HostConnection } from '../../src/guest/host-connection.js';
import { resolveHost } from '../../src/guest/resolve.js';
import { until } from '../support/polling.js';

type Records = Record<string, Record<string, string[]>>;

/** Name servers on real ports, one for each address that the sandbox may ask. */
class Network {
  readonly questions: string[] = [];
  readonly attempts: string[] = [];
  readonly files: Record<string, string> = {};
  private readonly servers = new Map<string, Server>();
  private readonly sockets = new Set<Socket>();

  async listen(address: string, onConnection: (socket: Socket) => void): Promise<void> {
    const server = createServer((socket) => {
      this.sockets.add(socket);
      socket.on('error', () => undefined);
      onConnection(socket);
    });
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    this.servers.set(address, server);
  }

  /** A name server with these records; without a name in them the name does not exist. */
  async serveNames(address: string, records: Records, rcode?: number): Promise<void> {
    await this.listen(address, (socket) => {
      let received = Buffer.alloc(0);
      socket.on('data', (data: Buffer) => {
        received = Buffer.concat([received, data]);
        if (received.length < 2 || received.length < 2 + received.readUInt16BE(0)) return;
        const { id = 0, questions = [] } = streamDecode(received);
        const [{ name, type }] = questions as [{ name: string; type: string }];
        this.questions.push(`${type} ${name}`);
        const found = records[name];
        const answers = (found?.[type] ?? []).map((data) => ({ name, type, ttl: 1, data }) as Answer);
        const alias: Answer[] = found?.['CNAME'] ? [{ name, type: 'CNAME', data: found['CNAME'][0]! }] : [];
        const flags = rcode ?? (found ? 0 : 3);
        const bytes = streamEncode({
          type: 'response',
          id,
          flags,
          questions,
          answers: [...alias, ...answers],
        });
        // In pieces, as a network may deliver them.
        socket.write(bytes.subarray(0, 1));
        setTimeout(() => socket.write(bytes.subarray(1)), 5);
      });
    });
  }

  get guest(): Guest {
    const files = {
      open: (path: string) =>
        path in this.files ? Promise.resolve(path.length) : Promise.reject(new Error('none')),
      read: (handle: number, _offset: bigint, length: number) => {
        const path = Object.keys(this.files).find((name) => name.length === handle)!;
        return Promise.resolve(Buffer.from(this.files[path]!).subarray(0, length));
      },
      end: () => undefined,
    };
    return {
      files: () => files as unknown as GuestFiles,
      connect: (address: string, port: number, listener: ConnectionListener) => {
        this.attempts.push(`${address} ${port}`);
        const server = this.servers.get(address);
        const socket = connect((server?.address() as AddressInfo | undefined)?.port ?? 1, '127.0.0.1');
        this.sockets.add(socket);
        let failure: string | null = null;
        socket.on('connect', () => listener.connected());
        socket.on('data', (data) => listener.data(data));
        socket.on('end', () => listener.ended());
        socket.on('error', () => (failure = 'Connection refused'));
        socket.on('close', () => listener.closed(failure));
        return {
          write: (data: Buffer) => new Promise<void>((resolve) => socket.write(data, () => resolve())),
          end: () => void socket.end(),
          grant: () => undefined,
          close: () => void socket.destroy(),
        };
      },
    } as unknown as Guest;
  }

  close(): void {
    for (const socket of this.sockets) socket.destroy();
    for (const server of this.servers.values()) server.close();
  }
}

let network: Network;
beforeEach(() => {
  network = new Network();
});
afterEach(() => network.close());

const resolve = (host: string) => resolveHost(network.guest, host, new AbortController().signal);

test('addresses are taken as they are', async () => {
  expect(await resolve('10.1.2.3')).toEqual(['10.1.2.3']);
  expect(await resolve('2001:db8::1')).toEqual(['2001:db8::1']);
  expect(await resolve('127.1')).toEqual(['127.0.0.1']);
  expect(network.attempts).toEqual([]);
});

test('names of the file of hosts come first, with every address', async () => {
  network.files['/etc/hosts'] = [
    '127.0.0.1\tlocalhost # 9.9.9.9 comment',
    '# 8.8.8.8 db',
    'not-an-address db',
    '2001:db8::5 DB database',
    '10.0.0.5   db db.internal',
    'fe80::1%eth0 db',
  ].join('\n');
  expect(await resolve('db')).toEqual(['10.0.0.5', '2001:db8::5']);
  expect(await resolve('Database.')).toEqual(['2001:db8::5']);
  expect(await resolve('localhost')).toEqual(['127.0.0.1']);
  expect(await resolve('app.localhost')).toEqual(['127.0.0.1', '::1']);
  await expect(resolve('comment')).rejects.toThrow('no name server');
});

test('localhost needs no file', async () => {
  expect(await resolve('localhost')).toEqual(['127.0.0.1', '::1']);
});

test('names are asked of the name server of the sandbox', async () => {
  network.files['/etc/resolv.conf'] = '# none\nnameserver 10.0.0.2\noptions edns0 trust-ad\n';
  await network.serveNames('10.0.0.2', {
    'example.com': { A: ['192.0.2.1', '192.0.2.2'], AAAA: ['2001:db8::2'] },
    'alias.example.com': { CNAME: ['example.com'], A: ['192.0.2.1'] },
    'xn--mnchen-3ya.de': { A: ['192.0.2.3'] },
    'empty.example.com': {},
  });
  expect(await resolve('Example.COM')).toEqual(['192.0.2.1', '192.0.2.2', '2001:db8::2']);
  expect(await resolve('alias.example.com')).toEqual(['192.0.2.1']);
  expect(await resolve('münchen.de')).toEqual(['192.0.2.3']);
  await expect(resolve('empty.example.com')).rejects.toThrow('do not know "empty.example.com"');
  await expect(resolve('none.example.com')).rejects.toThrow('do not know "none.example.com"');
  expect(network.questions.slice(0, 2).toSorted()).toEqual(['A example.com', 'AAAA example.com']);
});

test('the first records of a long answer are read: a guest may be the name server', async () => {
  network.files['/etc/resolv.conf'] = 'nameserver 10.0.0.2\n';
  const address = Buffer.from('c00c000100010000000100047f000001', 'hex');
  await network.listen('10.0.0.2', (socket) =>
    socket.once('data', (query: Buffer) => {
      const head = Buffer.from(query.subarray(2));
      head.writeUInt16BE(0x8180, 2);
      head.writeUInt16BE(65, 6);
      // The last record is no record. So are those of the other sections.
      head.writeUInt16BE(65_535, 8);
      const message = Buffer.concat([head, ...Array<Buffer>(64).fill(address), Buffer.alloc(9, 0xff)]);
      const length = Buffer.alloc(2);
      length.writeUInt16BE(message.length);
      socket.write(Buffer.concat([length, message]));
    }),
  );
  expect((await resolve('example.com'))[0]).toBe('127.0.0.1');
});

test('short names get the suffixes of the sandbox', async () => {
  network.files['/etc/resolv.conf'] = 'search one.test two.test.\nnameserver 10.0.0.2\n';
  await network.serveNames('10.0.0.2', { 'db.two.test': { A: ['192.0.2.7'] }, 'a.b': { A: ['192.0.2.8'] } });
  expect(await resolve('db')).toEqual(['192.0.2.7']);
  expect(await resolve('a.b')).toEqual(['192.0.2.8']);
  await expect(resolve('db.')).rejects.toThrow('do not know "db"');
  network.files['/etc/resolv.conf'] = 'search one.test\nnameserver 10.0.0.2\noptions ndots:5\n';
  network.questions.length = 0;
  expect(await resolve('a.b')).toEqual(['192.0.2.8']);
  expect(network.questions).toContain('A a.b.one.test');
});

test('the next name server is asked when one fails', async () => {
  network.files['/etc/resolv.conf'] = ['10.0.0.1', '10.0.0.2', '10.0.0.3']
    .map((server) => `nameserver ${server}`)
    .join('\n');
  await network.serveNames('10.0.0.2', {}, 2);
  await network.serveNames('10.0.0.3', { 'example.com': { A: ['192.0.2.1'] } });
  expect(await resolve('example.com')).toEqual(['192.0.2.1']);
});

test.each([
  ['nothing', (socket: Socket) => void socket.end()],
  ['a reset', (socket: Socket) => void socket.resetAndDestroy()],
  ['random bytes', (socket: Socket) => void socket.end(Buffer.from('0012deadbeef'.repeat(10), 'hex'))],
  ['endless bytes', (socket: Socket) => void socket.write(Buffer.alloc(1_000_000, 255))],
  ['an empty message', (socket: Socket) => void socket.end(Buffer.from([0, 0]))],
])('a name server that sends %s is a failure', async (_name, onConnection) => {
  network.files['/etc/resolv.conf'] = 'nameserver 10.0.0.2\n';
  await network.listen('10.0.0.2', onConnection);
  await expect(resolve('example.com')).rejects.toThrow('the name servers of the sandbox do not answer');
});

test('answers to another question or with another id give no address', async () => {
  network.files['/etc/resolv.conf'] = 'nameserver 10.0.0.2\n';
  await network.listen('10.0.0.2', (socket) =>
    socket.on('data', (data: Buffer) => {
      const { id = 0, questions = [] } = decode(data.subarray(2));
      const data1 = { name: 'x', type: 'A', data: '192.0.2.1' } as const;
      socket.end(streamEncode({ type: 'response', id: id ^ 1, questions, answers: [data1] }));
    }),
  );
  await expect(resolve('example.com')).rejects.toThrow('refused the query');
});

test.each(['', '.', 'a b', 'a..b', '-'.repeat(64), 'a.'.repeat(130), 'a/b', 'fe80::1%eth0', 'x\0y', '[::1]'])(
  '%j is no host name',
  async (host) => {
    network.files['/etc/resolv.conf'] = 'nameserver 10.0.0.2\n';
    await expect(resolve(host)).rejects.toThrow('is no host name');
    expect(network.attempts).toEqual([]);
  },
);

test('hostile files give no more than a few servers and suffixes', async () => {
  const many = Array.from({ length: 5_000 }, (_, i) => i);
  network.files['/etc/resolv.conf'] = [
    ...many.map((i) => `nameserver 10.1.${i >> 8}.${i & 255}`),
    `search ${many.map((i) => `s${i}.test`).join(' ')}`,
    'nameserver',
    'nameserver $(reboot)',
    `search ${'x'.repeat(300)} ok.test`,
    'options ndots:99999999999999999999',
  ].join('\n');
  await expect(resolve('example.com')).rejects.toThrow('do not answer');
  expect(new Set(network.attempts).size).toBeLessThanOrEqual(3);
});

/** A connection by name, and the calls of its listener. */
function open(host: string, port: number) {
  const calls: string[] = [];
  const connection = new HostConnection(network.guest, host, port, {
    connected: () => void calls.push('connected'),
    data: (data) => void calls.push(data.toString()),
    ended: () => void calls.push('ended'),
    closed: (failure) => void calls.push(`closed: ${failure}`),
  });
  return { calls, connection };
}

test('a connection tries one address after another', async () => {
  network.files['/etc/hosts'] = '10.0.0.8 web\n10.0.0.9 web\n';
  await network.listen('10.0.0.9', (socket) =>
    socket.on('data', (data) => socket.end(`got ${String(data)}`)),
  );
  const { calls, connection } = open('web', 80);
  await connection.write(Buffer.from('early'));
  await until(
    () => Promise.resolve(calls),
    (all) => all.some((call) => call.startsWith('closed')),
  );
  expect(calls).toEqual(['connected', 'got early', 'ended', 'closed: null']);
  expect(network.attempts).toEqual(['10.0.0.8 80', '10.0.0.9 80']);
});

test('a connection without success tells why', async () => {
  network.files['/etc/hosts'] = '10.0.0.8 web\n10.0.0.9 web\n';
  const [refused, unknown] = [open('web', 80), open('other', 80)];
  await until(
    () => Promise.resolve([refused, unknown]),
    (all) => all.every(({ calls }) => calls.length > 0),
  );
  expect(refused.calls).toEqual(['closed: Connection refused']);
  expect(unknown.calls).toEqual(['closed: the sandbox has no name server to look up "other"']);
});

test('a connection that is closed early ends once', async () => {
  network.files['/etc/resolv.conf'] = 'nameserver 10.0.0.2\n';
  await network.listen('10.0.0.2', () => undefined);
  const { calls, connection } = open('example.com', 80);
  connection.close();
  connection.close();
  await connection.write(Buffer.from('late'));
  expect(calls).toEqual(['closed: null']);
});

test('a connection gives up after 30 seconds', async () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  try {
    const guest = { files: () => ({ open: () => new Promise(() => undefined), end: () => undefined }) };
    const closed: (string | null)[] = [];
    const ignore = () => undefined;
    const listener = { connected: ignore, data: ignore, ended: ignore };
    const connection = new HostConnection(guest as unknown as Guest, 'example.com', 80, {
      ...listener,
      closed: (failure) => void closed.push(failure),
    });
    vi.advanceTimersByTime(29_000);
    expect(closed).toEqual([]);
    vi.advanceTimersByTime(2_000);
    expect(closed).toEqual(['Connection timed out']);
    await connection.write(Buffer.from('late'));
  } finally {
    vi.useRealTimers();
  }
});
