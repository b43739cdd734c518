import { readdirSync, readFileSync } from 'node:fs';
import { connect, type Socket } from 'node:net';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { connectionsFor } from '../../../src/http/connections.js';
import { clientNetworkOf } from '../../../src/lib/cidr.js';
import { cleanUp, launch, makeFolder, ready, stop, until, type Served } from '../../support/processes.js';
import { openRaw, requestHead, type RawConnection } from '../../support/raw-connection.js';
import { smallRequest } from '../../support/sandbox-requests.js';

const DESCRIPTORS = 256;
const TOTAL = connectionsFor(DESCRIPTORS);

let folder: string;
let service: Served;
beforeAll(async () => {
  folder = makeFolder();
  const fixed = ['--json', '--port', '0', '--runtime', 'simulated', '--log-level', 'warn'];
  const under = ['sh', '-c', `ulimit -n ${DESCRIPTORS}; exec "$@"`, 'sh'];
  service = await ready(launch(['serve', ...fixed, '--data-dir', folder], { under }), folder);
});
afterAll(async () => {
  await stop(service);
  await cleanUp(folder);
});

const descriptors = () => readdirSync(`/proc/${service.pid}/fd`).length;

/** Opens connections one after another. */
async function open(from: string, count: number): Promise<RawConnection[]> {
  const opened: RawConnection[] = [];
  for (let index = 0; index < count; index += 1) opened.push(await openRaw(service.url, from));
  return opened;
}

const headersOf = (key: string) => ({ authorization: `Bearer ${key}`, 'content-type': 'application/json' });

const readOrg = async () => fetch(`${service.url}/v1/me/org`, { headers: headersOf(service.firstKey!) });

async function expectServed(name: string): Promise<void> {
  const key = service.firstKey!;
  const made = await fetch(`${service.url}/v1/sandboxes`, {
    method: 'POST',
    headers: headersOf(key),
    body: JSON.stringify(smallRequest(name)),
  });
  expect(made.status).toBe(200);
  expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
}

/**
 * Opens connections whose requests the service has begun to read: it waits for the ends of their bodies. Those of an
 * earlier test end a moment after their connections, and count against the same organization until then.
 */
async function openBusy(from: string, count: number): Promise<RawConnection[]> {
  const headers = ['content-type: application/json', 'content-length: 100', 'expect: 100-continue'];
  const opened: RawConnection[] = [];
  while (opened.length < count) {
    const one = await openRaw(service.url, from);
    one.socket.write(requestHead('POST /v1/sandboxes', service.firstKey!, ...headers));
    await within(() => one.text() !== '' || one.isClosed());
    if (one.text().startsWith('HTTP/1.1 429 ')) {
      one.socket.destroy();
      continue;
    }
    expect(one.text()).toBe('HTTP/1.1 100 Continue\r\n\r\n');
    opened.push(one);
  }
  return opened;
}

const within = (holds: () => boolean) => until('the connections are as expected', holds);
const closedOf = (opened: readonly RawConnection[]) => opened.filter((one) => one.isClosed()).length;

test('more idle connections than descriptors, from several addresses, keep nobody out', async () => {
  const before = descriptors();
  const idle: RawConnection[] = [];
  for (const end of [2, 3, 4, 5, 6]) {
    idle.push(...(await open(`127.0.0.${end}`, 80)));
    await expectServed(`beside-${end}`);
  }
  expect(idle.length).toBeGreaterThan(DESCRIPTORS);
  await within(() => idle.length - closedOf(idle) <= TOTAL);
  // The oldest are closed first.
  expect(idle[0]!.isClosed()).toBe(true);
  expect(idle.at(-1)!.isClosed()).toBe(false);
  expect(service.err()).toContain('the limit of connections is reached');
  for (const { socket } of idle) socket.destroy();
  // The requests of this test have added connections to the database.
  await within(() => descriptors() < before + 40);
});

test('an address gets half of the connections, and its idle ones make room for new ones', async () => {
  const quarter = TOTAL / 4;
  const busy = await openBusy('127.0.0.7', quarter);
  const idle = await open('127.0.0.7', quarter);
  const more = await openBusy('127.0.0.7', 10);
  await within(() => closedOf(idle) === 10);
  expect(closedOf([...busy, ...more])).toBe(0);
  await expectServed('beside-the-busy');
  for (const { socket } of [...busy, ...idle, ...more]) socket.destroy();
});

test('a connection that finds no room gets 503 with Retry-After', async () => {
  const busy = await openBusy('127.0.0.8', TOTAL / 2);
  const [refused] = await open('127.0.0.8', 1);
  await within(() => refused!.isClosed());
  expect(refused!.text()).toMatch(/^HTTP\/1\.1 503 .*retry-after: 1\r\n.*"code":"not_ready"/is);
  expect((await fetch(`${service.url}/readyz`)).status).toBe(200);
  // One organization may have requests in progress on half of all connections.
  const beyond = await readOrg();
  expect([beyond.status, beyond.headers.get('retry-after')]).toEqual([429, '1']);
  for (const { socket } of busy) socket.destroy();
  await until('its requests have ended', async () => (await readOrg()).status === 200);
});

test('the connections leave descriptors in reserve, and IPv6 clients are counted by network', () => {
  expect([connectionsFor(256), connectionsFor(1_024), connectionsFor(1_048_576)]).toEqual([64, 448, 10_000]);
  expect(clientNetworkOf('2001:db8:1:2::9')).toBe(clientNetworkOf('2001:0db8:1:2:ffff::1'));
  expect(clientNetworkOf('2001:db8::1')).not.toBe(clientNetworkOf('2001:db8:0:1::1'));
  expect(clientNetworkOf('::1')).toBe('0:0:0:0::/64');
  expect(clientNetworkOf('64:ff9b::10.0.0.1')).toBe('64:ff9b:0:0::/64');
  expect(clientNetworkOf('::ffff:10.0.0.1')).toBe('10.0.0.1');
});

test('the kernel holds a burst of connections while the service is busy', async () => {
  const limit = Number(readFileSync('/proc/sys/net/core/somaxconn', 'utf8'));
  process.kill(service.pid, 'SIGSTOP');
  const burst: Socket[] = [];
  let established = 0;
  try {
    while (burst.length < Math.min(800, limit)) {
      const socket = connect({ host: '127.0.0.1', port: Number(new URL(service.url).port) });
      burst.push(socket.on('connect', () => (established += 1)).on('error', () => undefined));
    }
    await within(() => established === burst.length);
  } finally {
    for (const socket of burst) socket.destroy();
    process.kill(service.pid, 'SIGCONT');
  }
  await expectServed('after-the-burst');
});
