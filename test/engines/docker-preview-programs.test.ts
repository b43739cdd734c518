import { Client as GrpcClient, credentials, Metadata, status, type ServiceError } from '@grpc/grpc-js';
import { execFile } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { chromium } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { testInBrowser } from '../console/browser.js';
import { Authority } from '../support/certificates.js';
import { makeClient, type Client } from '../support/client.js';
import { describeImage } from '../support/container-image.js';
import { docker, SOCKET } from '../support/docker.js';
import { cleanUp, launch, makeFolder, ready, stop, until, type Served } from '../support/processes.js';
import { makePrograms, PROGRAMS_IMAGE } from '../support/programs.js';

const VITE = 5_173;
const GRPC = 50_051;
const FILES = 8_080;
const COMMAND = `
node grpc.mjs & node files.mjs /app/git ${FILES} &
cd vite && exec node ../node_modules/vite/bin/vite.js`;
const DOMAIN = 'preview.test';
const execute = promisify(execFile);

interface Preview {
  url: string;
  origin: string;
  token: string;
}

describeImage('programs of others through previews of a domain with TLS', () => {
  let folder: string;
  let files: string;
  let service: Served;
  let client: Client;
  let sandbox: string;
  beforeAll(async () => {
    makePrograms();
    files = mkdtempSync(join(tmpdir(), 'sandkeep-programs-'));
    folder = makeFolder();
    const authority = new Authority();
    const pair = authority.issue({ names: [`*.${DOMAIN}`] });
    const paths = ['ca.pem', 'cert.pem', 'key.pem'].map((name) => join(files, name)) as [
      string,
      string,
      string,
    ];
    [authority.root, pair.cert, pair.key].forEach((text, at) =>
      writeFileSync(paths[at]!, text, { mode: 0o600 }),
    );
    const previews = ['--preview-host', '127.0.0.1', '--preview-port', '0', '--preview-domain', DOMAIN];
    const tls = ['--preview-tls-cert', paths[1], '--preview-tls-key', paths[2]];
    const runtime = ['--runtime', 'docker', '--docker-socket', SOCKET, '--docker-network', 'none'];
    const args = ['serve', '--json', '--port', '0', '--data-dir', folder, '--log-level', 'warn'];
    service = await ready(launch([...args, ...previews, ...tls, ...runtime]), folder);
    client = makeClient(service.url, {
      org: { id: '', name: '', slug: '' },
      key: service.firstKey!,
      keyId: '',
    });
    const { body } = await client.post(
      '/v1/sandboxes',
      {
        name: 'programs',
        image: { type: 'oci', reference: PROGRAMS_IMAGE },
        pull_policy: 'never',
        runtime: { cmd: ['sh', '-c', COMMAND], workdir: '/app' },
        resources: { vcpus: 2, memory_mib: 1_024 },
      },
      { start: true, wait_for: 'running' },
    );
    sandbox = body.id;
    for (const port of [VITE, GRPC, FILES]) await untilListens(port);
  }, 300_000);
  afterAll(async () => {
    await client.delete(`/v1/sandboxes/${sandbox}`);
    const label = [`dev.sandkeep.sandbox=${sandbox}`];
    const left = () => docker.listContainers({ all: true, filters: { label } });
    await until('the container is gone', async () => (await left()).length === 0);
    await stop(service);
    await cleanUp(folder);
    rmSync(files, { recursive: true });
  });

  async function open(port: number, more: object = {}): Promise<Preview> {
    return (await client.post(`/v1/sandboxes/${sandbox}/previews`, { port, ...more })).body;
  }

  /** The status of a GET, and its body. */
  async function get({ origin, token }: Preview, path = '/'): Promise<{ status: number; text: string }> {
    const { host, hostname, port } = new URL(origin);
    const headers = { host, authorization: `Bearer ${token}` };
    const ca = readFileSync(join(files, 'ca.pem'));
    const sent = httpsRequest({
      host: '127.0.0.1',
      port,
      path,
      servername: hostname,
      ca,
      headers,
      agent: false,
    });
    sent.end();
    const [answer] = await once(sent, 'response');
    let text = '';
    for await (const chunk of answer) text += String(chunk);
    return { status: answer.statusCode, text };
  }

  async function untilListens(port: number): Promise<void> {
    const preview = await open(port);
    await until(`port ${port} listens`, async () => !(await get(preview)).text.includes('nothing listens'));
  }

  testInBrowser(
    'Vite replaces a module of a React page over its WebSocket, and keeps the state',
    async () => {
      // Vite answers to names that it knows. The other way is its setting server.allowedHosts.
      const blocked = await get(await open(VITE));
      expect([blocked.status, blocked.text]).toEqual([403, expect.stringContaining('allowedHosts')]);
      const { url } = await open(VITE, { host: 'sandbox' });
      const args = [
        '--no-sandbox',
        '--disable-dev-shm-usage',
        `--host-resolver-rules=MAP *.${DOMAIN} 127.0.0.1`,
      ];
      const browser = await chromium.launch({ executablePath: '/usr/bin/chromium', args });
      try {
        const page = await browser.newPage({ ignoreHTTPSErrors: true });
        const sockets: string[] = [];
        page.on('websocket', (socket) => sockets.push(new URL(socket.url()).host));
        let loads = 0;
        page.on('load', () => (loads += 1));
        await page.goto(url);
        await page.getByRole('button', { name: 'first text 0' }).click();
        await page.getByRole('button', { name: 'first text 1' }).waitFor();
        const before = loads;
        await client.post(`/v1/sandboxes/${sandbox}/exec`, {
          cmd: 'sed',
          args: ['-i', 's/first text/second text/', '/app/vite/App.jsx'],
        });
        await page.getByRole('button', { name: 'second text 1' }).waitFor();
        expect(loads).toBe(before);
        expect(new Set(sockets)).toEqual(new Set([new URL(url).host]));
      } finally {
        await browser.close();
      }
    },
  );

  test('gRPC has calls of each kind, deadlines, metadata, errors and trailers', async () => {
    const { origin, token } = await open(GRPC);
    const { host, hostname, port } = new URL(origin);
    const grpc = new GrpcClient(
      `127.0.0.1:${port}`,
      credentials.createSsl(readFileSync(join(files, 'ca.pem'))),
      { 'grpc.default_authority': host, 'grpc.ssl_target_name_override': hostname },
    );
    const granted = (more: Record<string, string> = {}) => {
      const metadata = new Metadata();
      for (const [name, value] of Object.entries({ authorization: `Bearer ${token}`, ...more })) {
        metadata.set(name, value);
      }
      return metadata;
    };
    const write = (value: object) => Buffer.from(JSON.stringify(value));
    const read = (bytes: Buffer) => JSON.parse(bytes.toString());
    const unary = (name: string, value: object, metadata = granted(), deadline = Infinity) =>
      new Promise<{ value?: any; error?: ServiceError; trailers: any }>((resolve) => {
        let answer: { value?: any; error?: ServiceError } = {};
        grpc
          .makeUnaryRequest(
            `/test.Programs/${name}`,
            write,
            read,
            value,
            metadata,
            { deadline },
            (error, found) => {
              answer = error ? { error } : { value: found };
            },
          )
          .on('status', ({ metadata: trailers }) => resolve({ ...answer, trailers: trailers.getMap() }));
      });
    try {
      const greeted = await unary('Greet', { name: 'you' }, granted({ 'x-mine': 'kept' }));
      expect(greeted.value).toMatchObject({ hello: 'you', metadata: { 'x-mine': 'kept' } });
      expect(greeted.value.metadata).not.toHaveProperty('authorization');
      expect(greeted.trailers).toMatchObject({ 'x-after': 'trailer' });

      const counted: number[] = [];
      const count = grpc.makeServerStreamRequest(
        '/test.Programs/Count',
        write,
        read,
        { to: 1_000 },
        granted(),
      );
      for await (const { at } of count) counted.push(at);
      expect([counted.length, counted.at(-1)]).toEqual([1_000, 1_000]);

      const sum = await new Promise((resolve, reject) => {
        const call = grpc.makeClientStreamRequest(
          '/test.Programs/Sum',
          write,
          read,
          granted(),
          (error, found) => (error ? reject(error) : resolve(found)),
        );
        for (let value = 1; value <= 100; value += 1) call.write({ value });
        call.end();
      });
      expect(sum).toEqual({ sum: 5_050 });

      // Each message waits for the answer to the one before.
      const echo = grpc.makeBidiStreamRequest('/test.Programs/Echo', write, read, granted());
      for (const turn of [1, 2, 3]) {
        echo.write({ turn });
        expect((await once(echo, 'data'))[0]).toEqual({ turn });
      }
      const ended = once(echo, 'status');
      echo.end();
      expect((await ended)[0]).toMatchObject({ code: status.OK });

      const { error: failed } = await unary('Fail', {});
      expect([failed!.code, failed!.details]).toEqual([status.FAILED_PRECONDITION, 'not so: 100 % "no"']);
      const { error: late } = await unary('Never', {}, granted(), Date.now() + 300);
      expect(late!.code).toBe(status.DEADLINE_EXCEEDED);
      const { error: stranger } = await unary('Greet', { name: 'you' }, new Metadata());
      expect(stranger!.code).toBe(status.UNAUTHENTICATED);
    } finally {
      grpc.close();
    }
  });

  test('git clones a repository with the grant in a header', async () => {
    const { origin, token } = await open(FILES);
    const { host, hostname, port } = new URL(origin);
    const clone = (...more: string[]) => {
      const settings = [`http.curloptResolve=${hostname}:${port}:127.0.0.1`];
      const args = [...settings, ...more].flatMap((setting) => ['-c', setting]);
      const target = join(files, 'clone');
      return execute('git', [...args, 'clone', '--quiet', `https://${host}/repository.git`, target], {
        env: { ...process.env, GIT_SSL_CAINFO: join(files, 'ca.pem'), GIT_TERMINAL_PROMPT: '0' },
      });
    };
    await expect(clone()).rejects.toThrow(/could not read Username|Authentication failed/);
    await clone(`http.extraHeader=x-sandkeep-preview: ${token}`);
    expect(readFileSync(join(files, 'clone/README'), 'utf8')).toBe('a repository in a sandbox\n');
  });
});
