import { expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import { postKey, signIn } from '../../support/console.js';
import { until } from '../../support/processes.js';
import { openRaw, requestHead } from '../../support/raw-connection.js';
import { startForTest, type TestOptions, type TestService } from '../../support/service.js';

const CLIENT = '203.0.113.9';
/**
 * Connections from 127.0.0.1 are those of the proxy, from other addresses of the loopback network those of strangers.
 */
const STRANGER = '127.0.0.2';

const startBehindProxy = (settings: TestOptions['settings'] = {}) =>
  startForTest({ worker: false, settings: { trustedProxies: ['127.0.0.1'], ...settings } });

async function keyFor(service: TestService, cidrs: string[]): Promise<string> {
  const { org } = await service.newOrg();
  const { key } = await createKey(service.ctx.pool, org.id, 'narrow', operator('test'), {
    ...FULL_ACCESS,
    cidrs,
  });
  return key;
}

/** The status of a request with these headers. */
async function ask(service: TestService, key: string, headers: string[], from?: string): Promise<number> {
  const { socket, whole } = await openRaw(service.url, from);
  socket.write(requestHead('GET /v1/sandboxes', key, 'connection: close', ...headers));
  return Number((await whole).split(' ')[1]);
}

test('a key for a network is judged by the address that the trusted proxy names', async () => {
  const service = await startBehindProxy();
  const key = await keyFor(service, [`${CLIENT}/32`, '2001:db8::/32']);
  const forwarded = (list: string) => [`x-forwarded-for: ${list}`];
  expect(await ask(service, key, forwarded(CLIENT))).toBe(200);
  expect(await ask(service, key, forwarded('[2001:db8::1]:443'))).toBe(200);
  expect(await ask(service, key, [...forwarded('6.6.6.6'), ...forwarded(CLIENT)])).toBe(200);
  // The proxy appends the address of a client that sends the header itself.
  expect(await ask(service, key, forwarded(`${CLIENT}, 198.51.100.1`))).toBe(403);
  expect(await ask(service, key, [...forwarded(CLIENT), ...forwarded('198.51.100.1')])).toBe(403);
  expect(await ask(service, key, forwarded(`${CLIENT}, nonsense`))).toBe(403);
  expect(await ask(service, key, [])).toBe(403);
  // The stranger forges the header on a connection of their own.
  expect(await ask(service, key, forwarded(CLIENT), STRANGER)).toBe(403);
  expect(await ask(service, key, [`forwarded: for=${CLIENT}`, `x-real-ip: ${CLIENT}`])).toBe(403);
  const list = Array.from({ length: 10_000 }, () => '127.0.0.1').join(',');
  expect(await ask(service, key, forwarded(`${CLIENT},${list}`))).toBe(431);
  expect(service.logs.some((line) => line.includes(`"address":"${CLIENT}"`))).toBe(true);
});

test('a key for the network of the proxy is no key for its clients', async () => {
  const service = await startBehindProxy();
  const key = await keyFor(service, ['127.0.0.0/8']);
  expect(await ask(service, key, [`x-forwarded-for: ${CLIENT}`])).toBe(403);
  expect(await ask(service, key, [`x-forwarded-for: 127.0.0.1, ${CLIENT}`])).toBe(403);
  expect(await ask(service, key, [])).toBe(200);
});

test('failed authentications count against the client, and not against the others of its proxy', async () => {
  const service = await startBehindProxy({ failedAuthLimit: 3 });
  const { key } = await service.newOrg();
  const guess = (list: string, from?: string) =>
    ask(service, 'skp_wrong', [`x-forwarded-for: ${list}`], from);
  for (let count = 0; count < 3; count += 1) expect(await guess(CLIENT)).toBe(401);
  expect(await guess(`1.2.3.4, ${CLIENT}`)).toBe(429);
  expect(await guess('203.0.113.10')).toBe(401);
  expect(await ask(service, key, ['x-forwarded-for: 203.0.113.10'])).toBe(200);
  // New addresses in forged headers give a stranger no new attempts.
  for (let count = 0; count < 3; count += 1) expect(await guess(`10.0.0.${count}`, STRANGER)).toBe(401);
  expect(await guess('10.0.0.9', STRANGER)).toBe(429);
});

test('the limit of connections counts the requests of each client of a proxy, and the connections of others', async () => {
  const service = await startBehindProxy({ connections: { total: 40, each: 3 } });
  const { key } = await service.newOrg();
  const hold = async (address: string, from?: string) => {
    const opened = await openRaw(service.url, from);
    opened.socket.write(
      requestHead('GET /v1/events/stream', key, `x-forwarded-for: ${address}`, 'accept: text/event-stream'),
    );
    await until(
      'the stream has begun or was refused',
      () => opened.text() !== '' || opened.isClosed(),
      60_000,
    );
    return opened;
  };
  const held = [];
  for (const end of [1, 1, 1, 2, 2, 2]) held.push(await hold(`203.0.113.${end}`));
  expect(held.map(({ text }) => text().split(' ')[1])).toEqual(Array.from({ length: 6 }, () => '200'));
  const beyond = await hold('203.0.113.1');
  expect(beyond.text()).toMatch(/^HTTP\/1\.1 429 .*"code":"rate_limited"/s);
  held[0]!.socket.destroy();
  await until('a request that has ended makes room', async () => {
    return (await ask(service, key, ['x-forwarded-for: 203.0.113.1'])) === 200;
  });
  // A stranger has the connections of one address, whatever the headers say.
  const strangers = [];
  for (const end of [1, 2, 3, 4]) strangers.push(await hold(`198.51.100.${end}`, STRANGER));
  expect(strangers.map(({ text }) => text().split(' ')[1])).toEqual(['200', '200', '200', '503']);
  for (const { socket } of [...held, ...strangers, beyond]) socket.destroy();
});

test('the console believes scheme and host of the trusted proxy only', async () => {
  const service = await startBehindProxy();
  const { key } = await service.newOrg();
  const outside = {
    'x-forwarded-host': 'api.example.com',
    'x-forwarded-proto': 'https',
    origin: 'https://api.example.com',
  };
  const answer = await postKey(service.url, key, outside);
  expect([answer.status, answer.headers.getSetCookie()[0]]).toEqual([
    201,
    expect.stringMatching(/^__Host-sandkeep_session=.*; Secure$/),
  ]);
  // A page that was sent without TLS is another origin.
  expect((await postKey(service.url, key, { ...outside, origin: 'http://api.example.com' })).status).toBe(
    403,
  );
  expect((await postKey(service.url, key, { ...outside, origin: 'https://evil.example' })).status).toBe(403);
  const direct = await startForTest({ worker: false });
  const own = (await direct.newOrg()).key;
  expect((await postKey(direct.url, own, outside)).status).toBe(403);
  const lie = await postKey(direct.url, own, { 'x-forwarded-proto': 'https' });
  expect(lie.headers.getSetCookie()[0]).toMatch(/^sandkeep_session=/);
  await signIn(direct, own);
});
