import { once } from 'node:events';
import { request as httpRequest, type IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { json } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Authority } from '../support/certificates.js';
import { urlOf } from '../support/cli.js';
import type { Client } from '../support/client.js';
import { describeDocker, docker, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { untilStatus } from '../support/polling.js';
import { OPEN_HOSTS, servePorts, type GrantedPreviews } from '../support/preview-service.js';
import { startTestService, type TestService } from '../support/service.js';
import { cleanUp, kill, launch, makeFolder, ready, stop, until, type Served } from '../support/processes.js';

const MIB = 1024 * 1024;
/** More than the buffers on the way hold. */
const LARGE_MIB = 128;
const COMMAND = `cd /tmp && echo hello >index.html && busybox truncate -s ${LARGE_MIB}M large
exec busybox httpd -f -p 127.0.0.1:8000 -h /tmp`;

describeDocker('previews by a process without the engine, which reaches another one by TLS', () => {
  const hosts = OPEN_HOSTS();
  let folder: string;
  let front: TestService;
  let previews: GrantedPreviews;
  let back: Served;
  let client: Client;
  let sandbox: string;
  let origin: string;
  let token: string;
  beforeAll(async () => {
    makeImage();
    folder = makeFolder();
    front = await startTestService({ worker: false, previews: hosts });
    previews = await servePorts(front, hosts);
    client = await front.newOrg();
    const { cert, key } = new Authority().issue();
    writeFileSync(join(folder, 'cert.pem'), cert);
    writeFileSync(join(folder, 'key.pem'), key, { mode: 0o600 });
    back = await serveBack();
    sandbox = await create({
      name: 'tunnel',
      image: { type: 'oci', reference: IMAGE },
      pull_policy: 'never',
      runtime: { cmd: ['sh', '-c', COMMAND] },
      resources: { memory_mib: 64 },
    });
    ({ origin, token } = (await client.post(`/v1/sandboxes/${sandbox}/previews`, { port: 8_000 })).body);
    await until('the preview answers', async () => (await get('/')).statusCode === 200);
  });
  afterAll(async () => {
    await client.delete(`/v1/sandboxes/${sandbox}`);
    const label = [`dev.sandkeep.sandbox=${sandbox}`];
    const left = () => docker.listContainers({ all: true, filters: { label } });
    await until('the container is gone', async () => (await left()).length === 0);
    await stop(back);
    await previews.close();
    await front.close();
    await cleanUp(folder);
  });

  /** A process of its own with the Docker engine. */
  function serveBack(): Promise<Served> {
    const keys = ['event', 'secret'].flatMap((name) => [
      `--${name}-keys-file`,
      join(front.directory, `${name}-keys`),
    ]);
    const tls = ['--tls-cert', join(folder, 'cert.pem'), '--tls-key', join(folder, 'key.pem')];
    const runtime = ['--runtime', 'docker', '--docker-socket', SOCKET, '--docker-network', 'none'];
    const place = ['--database-url', urlOf(front.database), '--data-dir', join(folder, 'back')];
    const args = ['serve', '--json', '--preview-host', 'none', '--port', '0', '--log-level', 'warn'];
    return ready(launch([...args, ...tls, ...runtime, ...keys, ...place]), folder);
  }

  /** By the process with the engine: a sandbox is of the runtime of the process that creates it. */
  async function create(request: object): Promise<string> {
    const url = new URL('/v1/sandboxes?start=true&wait_for=running&wait_timeout=120', back.url);
    const headers = { authorization: `Bearer ${client.key}`, 'content-type': 'application/json' };
    const sent = httpsRequest(url, { method: 'POST', agent: false, rejectUnauthorized: false, headers });
    sent.end(JSON.stringify(request));
    const [answer] = await once(sent, 'response');
    const body = (await json(answer)) as { id: string; status: string };
    expect(body.status, JSON.stringify(body)).toBe('running');
    return body.id;
  }

  async function get(path: string): Promise<IncomingMessage> {
    const { host, port } = new URL(origin);
    const headers = { host, authorization: `Bearer ${token}` };
    const sent = httpRequest({ host: '127.0.0.1', port, path, agent: false, headers }).end();
    const [answer] = (await once(sent, 'response')) as [IncomingMessage];
    return answer;
  }
  async function sizeOf(answer: IncomingMessage): Promise<number | 'broken'> {
    let size = 0;
    try {
      for await (const chunk of answer) size += (chunk as Buffer).length;
      return size;
    } catch {
      return 'broken';
    }
  }

  test('break off when that process is killed, and work again when another one has its sandbox', async () => {
    expect(await sizeOf(await get('/large'))).toBe(LARGE_MIB * MIB);

    const answer = await get('/large');
    expect(answer.statusCode).toBe(200);
    await once(answer, 'readable');
    kill('SIGKILL', back.pid);
    await back.exited;
    expect(await sizeOf(answer)).toBe('broken');
    const refusal = await get('/');
    expect([refusal.statusCode, refusal.headers['retry-after']]).toEqual([503, '1']);

    back = await serveBack();
    await untilStatus(client, sandbox, 'running');
    await until('the preview answers', async () => (await get('/')).statusCode === 200);
    expect(await sizeOf(await get('/large'))).toBe(LARGE_MIB * MIB);
  });
});
