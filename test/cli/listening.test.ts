import { request, type IncomingMessage, type RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { once } from 'node:events';
import { existsSync, lstatSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { text } from 'node:stream/consumers';
import { connect } from 'node:tls';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { Authority, pairFiles } from '../support/certificates.js';
import {
  cleanUp,
  copyFolder,
  kill,
  launch,
  makeDatabaseFolder,
  makeUsed,
  ready,
  stop,
  until,
  type Served,
} from '../support/processes.js';

let used: string;
let key: string;
let folder: string;
let path: string;
beforeAll(async () => {
  ({ used, key } = await makeUsed());
});
afterAll(() => cleanUp(dirname(used)));
beforeEach(() => {
  folder = makeDatabaseFolder();
  path = join(folder, 'api.sock');
  copyFolder(used, join(folder, 'data'));
});
afterEach(() => cleanUp(folder));

const FIXED = ['--json', '--port', '0', '--runtime', 'simulated', '--log-level', 'info'];

function begin(...more: string[]) {
  return launch(['serve', ...FIXED, '--data-dir', join(folder, 'data'), ...more]);
}

function serveWith(...more: string[]): Promise<Served> {
  return ready(begin(...more), join(folder, 'data'));
}

interface Asked extends RequestOptions {
  headers?: Record<string, string>;
}

async function ask(options: Asked): Promise<{ status: number; body: string; connection?: string }> {
  const sent = request({
    path: '/v1/sandboxes',
    agent: false,
    ...options,
    headers: { authorization: `Bearer ${key}`, connection: 'close', ...options.headers },
  }).end();
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  return {
    status: answer.statusCode!,
    body: await text(answer),
    connection: String(answer.headers.connection),
  };
}

const statusOf = async (options: Asked) => (await ask(options)).status;
const portOf = ({ url }: Served) => Number(new URL(url).port);

test('a Unix socket has its mode, serves beside the port, and goes with the service', async () => {
  const service = await serveWith('--listen-unix', path, '--listen-unix-mode', '600');
  expect(lstatSync(path).mode & 0o777).toBe(0o600);
  expect(await statusOf({ socketPath: path })).toBe(200);
  expect(await statusOf({ port: portOf(service) })).toBe(200);
  expect(service.err()).toContain('"address":"unix"');
  const rival = begin('--listen-unix', path, '--data-dir', join(makeUsedCopy(), 'data'));
  expect((await rival.exited).code).toBe(1);
  expect(rival.err()).toContain(`another process listens on ${path}: stop it`);
  expect(await statusOf({ socketPath: path })).toBe(200);
  expect(await stop(service)).toBe(0);
  expect(existsSync(path)).toBe(false);
});

/** A second installation, inside the folder of the test. */
function makeUsedCopy(): string {
  const second = join(folder, 'second');
  copyFolder(dirname(used), second);
  return second;
}

test('the socket of a killed process is replaced, and nothing else is', async () => {
  const killed = await serveWith('--listen-unix', path, '--host', 'none');
  expect(killed.url).toBe(`unix:${path}`);
  expect(await statusOf({ socketPath: path })).toBe(200);
  kill('SIGKILL', killed.pid);
  await killed.exited;
  expect(lstatSync(path).isSocket()).toBe(true);
  const next = await serveWith('--listen-unix', path, '--host', 'none');
  expect(await statusOf({ socketPath: path })).toBe(200);
  // A key for networks has none to be used from.
  const made = await create({ socketPath: path }, ['127.0.0.0/8', '::/0', '0.0.0.0/0']);
  expect(await statusOf({ socketPath: path, headers: { authorization: `Bearer ${made}` } })).toBe(403);
  const forged = { authorization: `Bearer ${made}`, 'x-forwarded-for': '127.0.0.1' };
  expect(await statusOf({ socketPath: path, headers: forged })).toBe(403);
  expect(await stop(next)).toBe(0);
  const trusting = await serveWith('--listen-unix', path, '--host', 'none', '--trusted-proxies', 'unix');
  expect(await statusOf({ socketPath: path, headers: forged })).toBe(200);
  expect(await stop(trusting)).toBe(0);
  writeFileSync(path, 'a file of somebody');
  const refused = begin('--listen-unix', path);
  expect((await refused.exited).code).toBe(1);
  expect(refused.err()).toContain(`${path} exists and is no socket: remove it`);
  const nowhere = begin('--host', 'none');
  expect((await nowhere.exited).code).toBe(1);
  expect(nowhere.err()).toContain('give --listen-unix');
});

/** A new key for some networks. */
async function create(where: RequestOptions, cidrs: string[]): Promise<string> {
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const sent = request({ ...where, method: 'POST', path: '/v1/keys', headers, agent: false }).end(
    JSON.stringify({ name: 'narrow', scopes: ['sandboxes:read'], cidrs }),
  );
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  const body = await text(answer);
  expect([answer.statusCode, body]).toEqual([expect.toSatisfy((status) => status < 300), expect.any(String)]);
  return (JSON.parse(body) as { key: string }).key;
}

test('a service at SIGTERM first tells load balancers, still serves, and then exits with 0', async () => {
  const service = await serveWith('--drain-seconds', '15');
  const here = { port: portOf(service), headers: { connection: 'keep-alive' } };
  expect(await ask(here)).toMatchObject({ status: 200, connection: 'keep-alive' });
  expect(await statusOf({ ...here, path: '/readyz' })).toBe(200);
  const stream = request({
    ...here,
    path: '/v1/events/stream',
    agent: false,
    headers: { authorization: `Bearer ${key}` },
  }).end();
  const [following] = (await once(stream, 'response')) as [IncomingMessage];
  const followed = text(following);
  kill('SIGTERM', service.pid);
  const began = performance.now();
  await until('it is not ready', async () => (await statusOf({ ...here, path: '/readyz' })) === 503);
  expect((await ask({ ...here, path: '/readyz' })).body).toContain('the service is stopping');
  expect(await ask(here)).toMatchObject({ status: 200, connection: 'close' });
  expect(await statusOf({ ...here, path: '/healthz' })).toBe(200);
  expect(await service.exited).toEqual({ code: 0, signal: null });
  expect(performance.now() - began).toBeGreaterThan(14_900);
  expect(await followed).toMatch(/^: following\n\n[\s\S]*retry: 1000\n\n$/);
});

test('a second signal ends the drain at once', async () => {
  const service = await serveWith('--drain-seconds', '3600');
  kill('SIGTERM', service.pid);
  await until(
    'it is not ready',
    async () => (await statusOf({ port: portOf(service), path: '/readyz' })) === 503,
  );
  kill('SIGTERM', service.pid);
  expect((await service.exited).code).toBe(1);
});

test('SIGHUP serves a renewed certificate, and the port serves nothing without TLS', async () => {
  const authority = new Authority();
  const files = pairFiles(authority.issue());
  const service = await serveWith('--tls-cert', files.cert, '--tls-key', files.key, '--listen-unix', path);
  expect(service.url).toMatch(/^https:\/\/127\.0\.0\.1:\d+$/);
  const here = { host: '127.0.0.1', port: portOf(service), ca: authority.root };
  const serial = async () => {
    const socket = connect(here);
    await once(socket, 'secureConnect');
    const { serialNumber } = socket.getPeerCertificate();
    socket.destroy();
    return serialNumber;
  };
  const sent = httpsRequest({ ...here, path: '/readyz', agent: false }).end();
  expect(((await once(sent, 'response')) as [IncomingMessage])[0].statusCode).toBe(200);
  sent.destroy();
  expect(await ask({ port: here.port })).toMatchObject({
    status: 400,
    body: expect.stringContaining('https://'),
  });
  expect(await statusOf({ socketPath: path })).toBe(200);
  const before = await serial();
  files.write(authority.issue());
  kill('SIGHUP', service.pid);
  await until('the new certificate is served', async () => (await serial()) !== before);
  expect(await stop(service)).toBe(0);
  const halved = begin('--tls-cert', files.cert);
  expect((await halved.exited).code).toBe(1);
  expect(halved.err()).toContain('give --tls-cert and --tls-key');
});
