import { createServer, type AddressInfo, type Server } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { MAX_ADDRESSES } from '../../../src/outbound/destination.js';
import { makeResolver } from '../../../src/outbound/resolve.js';
import { webhookSettings, type WebhookSettings } from '../../../src/settings.js';
import { makeClient, type Client } from '../../support/client.js';
import { freePort } from '../../support/free-port.js';
import { startNameServer, type NameServer } from '../../support/name-server.js';
import { startForTest, startTestService, type TestService } from '../../support/service.js';

/** These stand for public addresses; every other address of this machine is a forbidden one. */
const PUBLIC = '127.0.0.1';
const REFUSING = '127.7.0.0/16';
const FORBIDDEN = '127.0.0.2';

let names: NameServer;
let service: TestService;
let webhooks: WebhookSettings;
let client: Client;
let hook: string;
let receiver: Server;
let port: number;
/** The local addresses of all connections. */
let connections: string[] = [];
let answer = 'HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n';

beforeAll(async () => {
  names = await startNameServer(() => []);
  receiver = createServer((socket) => {
    const address = socket.localAddress!;
    if (address !== PUBLIC) connections.push(address);
    socket
      .on('error', () => undefined)
      .once('data', (head) => {
        // Other tests may still send to the address of an earlier receiver, which had this port.
        if (address === PUBLIC && !/^host: 127\.0\.0\.1:/im.test(String(head))) connections.push(address);
        socket.end(answer);
      });
  });
  await new Promise<void>((resolve) => receiver.listen(0, '0.0.0.0', resolve));
  ({ port } = receiver.address() as AddressInfo);
  webhooks = {
    ...webhookSettings({ webhookAllow: [PUBLIC, REFUSING], webhookHttp: true }),
    resolve: makeResolver([names.address]),
    timeoutMs: 30_000,
  };
  service = await startTestService({ settings: { webhooks }, worker: false });
  client = await service.newOrg();
  hook = (await client.post('/v1/webhooks', { url: `http://first.example:${port}/` })).body.id;
});
afterAll(async () => {
  await service.close();
  receiver.close();
  await names.close();
});

/** Posts a test event to the host and returns the outcome. */
async function sendTo(host: string, records: NameServer['records'], at = port, by = client) {
  [connections, names.questions] = [[], []];
  names.records = records;
  const { status, body } = await client.patch(`/v1/webhooks/${hook}`, { url: `http://${host}:${at}/` });
  expect(status, JSON.stringify(body)).toBe(200);
  return (await by.post(`/v1/webhooks/${hook}/test`)).body.results.at(-1);
}

test('a name with a new address at each question is resolved once for an attempt', async () => {
  let asked = 0;
  // The address question and its IPv6 twin of the first attempt get the public address.
  const rebinding = () => (asked++ < 2 ? [PUBLIC] : [FORBIDDEN]);
  let sent: { duration_ms: number };
  do {
    asked = 0;
    sent = await sendTo('rebinding.example', rebinding);
    // A question without an answer is repeated after two seconds, which a busy machine may need.
  } while (sent.duration_ms >= 2_000);
  expect(sent).toMatchObject({ response_status: 200 });
  expect(names.questions.toSorted()).toEqual(['A rebinding.example', 'AAAA rebinding.example']);
  expect(connections).toEqual([PUBLIC]);
  expect((await client.post(`/v1/webhooks/${hook}/test`)).body.results.at(-1).error).toContain(
    'is not a public address',
  );
  expect(connections).toEqual([PUBLIC]);
});

test.each([
  ['one forbidden address among allowed ones', [PUBLIC, FORBIDDEN]],
  ['an IPv6 address of this machine beside an allowed one', [PUBLIC, '::1']],
  ['an IPv4 address in IPv6', [PUBLIC, '::ffff:7f00:2']],
  ['an address behind NAT64', [PUBLIC, '64:ff9b::7f00:2']],
  ['an address behind 6to4', [PUBLIC, '2002:7f00:2::']],
  ['an alias of a forbidden name', { alias: 'metadata.internal', addresses: ['169.254.169.254'] }],
])('a name is refused with %s', async (_, records) => {
  expect(await sendTo('mixed.example', () => records)).toMatchObject({
    error: 'mixed.example is not a public address, and the operator has not allowed it',
    response_status: null,
  });
  expect(connections).toEqual([]);
});

test('a name ends in a dot or not, also in the hosts file', async () => {
  expect(await sendTo('dotted.example.', () => [PUBLIC])).toMatchObject({ response_status: 200 });
  expect(names.questions).toContain('A dotted.example');
  await sendTo('localhost.', () => [FORBIDDEN]);
  expect(names.questions).toEqual([]);
});

test('a few addresses of a name are tried, however many it has', async () => {
  const unused = await freePort();
  const many = Array.from({ length: 600 }, (_, index) => `127.7.${index >> 8}.${index & 255}`);
  const { error } = await sendTo('many.example', () => many, unused);
  expect(error.match(/ECONNREFUSED/g)).toHaveLength(MAX_ADDRESSES);
  // All are checked.
  const last = await sendTo('many.example', () => [...many, FORBIDDEN], unused);
  expect(last.error).toContain('is not a public address');
});

test('a silent name server ends with the attempt', async () => {
  const hurried = await startForTest({
    beside: service,
    sameEngine: true,
    worker: false,
    settings: { webhooks: { ...webhooks, timeoutMs: 1_000 } },
  });
  const { error } = await sendTo('silent.example', () => null, port, makeClient(hurried.url, client));
  expect(error).toMatch(/no answer within|cannot be resolved/);
});

/** Writes a piece until the client closes the connection. */
function endless(begin: string, piece: string): Promise<Server> {
  const server = createServer((socket) => {
    const write = () => {
      while (!socket.destroyed && socket.write(piece)) continue;
    };
    socket.on('error', () => undefined).on('drain', write);
    socket.once('data', () => {
      socket.write(begin);
      write();
    });
  });
  return new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server)));
}

test.each([
  ['interim responses', '', 'HTTP/1.1 102 Processing\r\n\r\n'.repeat(500)],
  ['early hints', '', `HTTP/1.1 103 Early Hints\r\nlink: ${'x'.repeat(8_000)}\r\n\r\n`],
])('%s without end are cut off', async (_, begin, piece) => {
  const server = await endless(begin, piece);
  const { error } = await sendTo('flood.example', () => [PUBLIC], (server.address() as AddressInfo).port);
  expect(error).toBe('the receiver sent more than 64 KiB before its answer');
  server.close();
});

test('a body of a few bytes in endless chunk headers is cut off', async () => {
  const begin = 'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n';
  const server = await endless(begin, `1;${'x'.repeat(16_000)}\r\ny\r\n`);
  const result = await sendTo('flood.example', () => [PUBLIC], (server.address() as AddressInfo).port);
  expect(result).toMatchObject({ response_status: 200, error: null });
  expect(result.response_body.length).toBeLessThan(1_024);
  server.close();
});

test.each([301, 302, 307, 308])('a redirect with status %i is not followed', async (status) => {
  const location = `http://${FORBIDDEN}:${port}/`;
  answer = `HTTP/1.1 ${status} Moved\r\nlocation: ${location}\r\ncontent-length: 0\r\n\r\n`;
  expect(await sendTo('moved.example', () => [PUBLIC])).toMatchObject({ response_status: status });
  expect(connections).toEqual([PUBLIC]);
  // The forbidden address has a listener, which this test would see.
  await fetch(location, { redirect: 'manual' });
  expect(connections).toEqual([PUBLIC, FORBIDDEN]);
});
