import { once } from 'node:events';
import { Agent, request as httpsRequest, type RequestOptions } from 'node:https';
import type { IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { connect as connectTls, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { Certificate } from '../../../src/http/tls/certificate.js';
import { AgentClient } from '../../support/agent-client.js';
import { Authority, pairFiles, type IssuedPair, type PairFiles } from '../../support/certificates.js';
import { describeDocker } from '../../support/docker.js';
import { startInside } from '../../support/inside.js';
import { until } from '../../support/polling.js';
import { exchangeRaw, openRaw, requestHead, WEBSOCKET } from '../../support/raw-connection.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest, startTestService, type TestOptions, type TestService } from '../../support/service.js';

const SILENT = { info: () => undefined, warn: () => undefined, error: () => undefined };

let authority: Authority;
let pair: IssuedPair;
beforeAll(() => {
  authority = new Authority();
  pair = authority.issue();
});

interface Secured {
  service: TestService;
  certificate: Certificate;
  files: PairFiles;
}

async function startSecured(options: TestOptions = {}): Promise<Secured> {
  const files = pairFiles(pair);
  const certificate = new Certificate(files, SILENT);
  const service = await startForTest({ worker: false, certificate, ...options });
  return { service, certificate, files };
}

interface Asked {
  status: number;
  headers: IncomingMessage['headers'];
  body: string;
}

/** A request of a client that trusts the root only. */
async function ask(url: string, options: RequestOptions & { body?: string } = {}): Promise<Asked> {
  const request = httpsRequest(url, { ca: authority.root, agent: false, ...options }).end(options.body);
  const [answer] = (await once(request, 'response')) as [IncomingMessage];
  return { status: answer.statusCode!, headers: answer.headers, body: await text(answer) };
}

const bearer = (key: string) => ({ authorization: `Bearer ${key}` });

async function shake({ url }: TestService, options: ConnectionOptions = {}): Promise<TLSSocket> {
  const port = Number(new URL(url).port);
  const socket = connectTls({ host: '127.0.0.1', port, ca: authority.root, ...options });
  onTestFinished(() => void socket.destroy());
  await once(socket, 'secureConnect');
  return socket;
}

describe('over TLS', () => {
  test('the API answers clients that know the root of the chain, on connections that stay open', async () => {
    const { service } = await startSecured();
    const { key } = await service.newOrg();
    expect(service.url).toMatch(/^https:/);
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const list = () => ask(`${service.url}/v1/sandboxes`, { agent, headers: bearer(key) });
    expect((await list()).status).toBe(200);
    expect(JSON.parse((await list()).body).data).toEqual([]);
    agent.destroy();
    await expect(ask(`${service.url}/readyz`, { ca: pair.leaf })).rejects.toThrow(/certificate/);
  });

  test('the protocol is TLS 1.2 or later with forward secrecy, and speaks HTTP/1.1', async () => {
    const { service } = await startSecured();
    expect((await shake(service)).getProtocol()).toBe('TLSv1.3');
    const second = await shake(service, { maxVersion: 'TLSv1.2', ALPNProtocols: ['h2', 'http/1.1'] });
    expect([second.getProtocol(), second.alpnProtocol]).toEqual(['TLSv1.2', 'http/1.1']);
    expect(second.getCipher().name).toMatch(/^ECDHE-.*(GCM|POLY1305)/);
    const weak = [
      { maxVersion: 'TLSv1.1', minVersion: 'TLSv1', ciphers: 'DEFAULT@SECLEVEL=0' },
      { maxVersion: 'TLSv1.2', ciphers: 'ECDHE-ECDSA-AES128-SHA' },
      { maxVersion: 'TLSv1.2', ciphers: 'AES256-GCM-SHA384' },
      { ALPNProtocols: ['h2'] },
    ] as const;
    for (const options of weak) {
      await expect(shake(service, options as ConnectionOptions)).rejects.toThrow(
        /alert|disconnected|ECONNRESET/i,
      );
    }
  });

  test('a plain request is told to use HTTPS, and nothing of it is served', async () => {
    const { service } = await startSecured();
    const { key } = await service.newOrg();
    const request = requestHead('POST /v1/volumes', key, 'content-length: 60000');
    const answer = await exchangeRaw(service.url.replace('https', 'http'), request + 'x'.repeat(60_000));
    expect(answer).toMatch(/^HTTP\/1\.1 400 .*"code":"invalid_request".*write https:\/\/ in the URL/s);
    expect(answer.match(/HTTP\/1\.1/g)).toHaveLength(1);
    expect(service.logs.join('\n')).not.toContain('request answered');
  });

  test('a renewed certificate is served to new connections, and a broken one changes nothing', async () => {
    const { service, certificate, files } = await startSecured();
    const serialOf = async () => {
      const socket = await shake(service);
      return socket.getPeerCertificate().serialNumber;
    };
    const open = await shake(service);
    const [first, before] = [await serialOf(), open.getPeerCertificate().serialNumber];
    expect(first).toBe(before);
    const next = authority.issue();
    files.write({ cert: next.cert, key: pair.key });
    certificate.reload();
    expect(await serialOf()).toBe(first);
    files.write(next);
    certificate.reload();
    expect(await serialOf()).not.toBe(first);
    open.write(requestHead('GET /readyz', null, 'connection: close'));
    expect(await text(open)).toMatch(/^HTTP\/1\.1 200 /);
  });

  test('cookies are secure, origins without TLS are foreign, and HSTS is sent only when it is chosen', async () => {
    const { service } = await startSecured({ settings: { hstsDays: 7 } });
    const { key } = await service.newOrg();
    const { host, origin } = new URL(service.url);
    const signIn = (from: string) =>
      ask(`${service.url}/console/session`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', origin: from },
        body: JSON.stringify({ key }),
      });
    const { status, headers } = await signIn(origin);
    expect([status, headers['strict-transport-security']]).toEqual([201, 'max-age=604800']);
    expect(headers['set-cookie']![0]).toMatch(/^__Host-sandkeep_session=.*; Secure$/);
    expect((await signIn(`http://${host}`)).status).toBe(403);
    const { service: plain } = await startSecured();
    expect((await ask(`${plain.url}/readyz`)).headers).not.toHaveProperty('strict-transport-security');
  });

  test('connections before and in their handshake count, make room for others, and end in time', async () => {
    const { service } = await startSecured({ settings: { connections: { total: 20, each: 6 } } });
    const open = async (first: string) => {
      const opened = await openRaw(service.url);
      opened.socket.write(first);
      onTestFinished(() => void opened.socket.destroy());
      return opened;
    };
    // Silent ones, the begin of a handshake, and one that never continues its record.
    const began = performance.now();
    const slow = [
      await open(''),
      await open('\x16'),
      await open('\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03'),
    ];
    const held = [await shake(service), await shake(service), await shake(service)];
    expect((await ask(`${service.url}/readyz`)).status).toBe(200);
    // The longest idle ones were closed for it.
    expect(slow[0]!.isClosed()).toBe(true);
    expect(held.every(({ destroyed }) => !destroyed)).toBe(true);
    await until(
      async () => Promise.resolve(slow.filter((one) => one.isClosed()).length),
      (count) => count === slow.length,
      60_000,
    );
    expect(performance.now() - began).toBeGreaterThan(5_000);
    // Noise that is no TLS after the first record.
    const noise = await open('\x16\x03\x01\x00\x05hello');
    await noise.whole;
    for (let count = 0; count < 20; count += 1) (await openRaw(service.url)).socket.resetAndDestroy();
    expect((await ask(`${service.url}/readyz`)).status).toBe(200);
  });

  test('a request to upgrade to another protocol is answered, and WebSockets pass the hooks', async () => {
    const { service } = await startSecured();
    const { key } = await service.newOrg();
    const h2c = ['Connection: Upgrade, HTTP2-Settings', 'Upgrade: h2c', 'HTTP2-Settings: AAMAAABk'];
    const exchange = async (head: string) => {
      const socket = await shake(service);
      socket.write(head);
      return text(socket);
    };
    expect(await exchange(requestHead('GET /v1/sandboxes', key, ...h2c))).toMatch(/^HTTP\/1\.1 200 /);
    const path = `/v1/sandboxes/${crypto.randomUUID()}/agent`;
    expect(await exchange(requestHead(`GET ${path}`, key, ...WEBSOCKET))).toMatch(/^HTTP\/1\.1 404 /);
  });
});

describe('a process with TLS', () => {
  test('gets requests of other processes when they trust its authority', async () => {
    const back = await startForTest({
      certificate: new Certificate(pairFiles(pair), SILENT),
      advertisedHost: 'localhost',
    });
    const front = await startForTest({ beside: back, worker: false, authorities: [authority.root] });
    const wary = await startForTest({ beside: back, worker: false });
    const client = await front.newOrg();
    const { body } = await client.post('/v1/sandboxes', smallRequest('a'), {
      start: true,
      wait_for: 'running',
    });
    const follow = async (url: string) => {
      const answer = await fetch(`${url}/v1/sandboxes/${body.id}/logs?sources=system`, {
        headers: bearer(client.key),
      });
      const { value } = await answer.body!.getReader().read();
      return [answer.status, String(value && Buffer.from(value))];
    };
    expect(await follow(front.url)).toEqual([200, expect.stringContaining(': following')]);
    expect(await follow(wary.url)).toEqual([503, expect.stringContaining('cannot be reached')]);
    expect(wary.logs.join('\n')).toMatch(/SELF_SIGNED|UNABLE_TO|self-signed/);
  });
});

describeDocker('a channel into a sandbox', () => {
  test('opens over TLS, here to a process that forwards it', async () => {
    const inside = await startInside();
    onTestFinished(() => inside.close());
    const certificate = new Certificate(pairFiles(pair), SILENT);
    const front = await startTestService({ beside: inside.service, worker: false, certificate });
    try {
      const id = await inside.start('box');
      const { key } = inside.client;
      const agent = await AgentClient.open({ url: front.url, key }, id, { ca: authority.root });
      const { stdout } = await agent.outcome(agent.sh('echo over TLS; head -c 300000 /dev/zero | wc -c'));
      expect(stdout).toBe('over TLS\n300000\n');
      agent.close();
    } finally {
      await front.close();
    }
  });
});
