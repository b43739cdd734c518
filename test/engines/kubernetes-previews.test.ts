import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PROGRAM, start } from '../support/cli.js';
import type { Client } from '../support/client.js';
import { destroyAll } from '../support/docker-service.js';
import {
  describeKubernetes,
  NODE_IMAGE,
  openNamespace,
  untilRunning,
  type TestNamespace,
} from '../support/kubernetes.js';
import { until } from '../support/polling.js';
import { askPreview, OPEN_HOSTS, servePorts, type GrantedPreviews } from '../support/preview-service.js';
import { startTestService, type TestService } from '../support/service.js';

const HTTP = 8_000;
const COUNT = 7_002;
const MIB = 1024 * 1024;
/** The server of HTTP listens on the loopback address of the Pod alone. */
const COMMAND = `cd /tmp && echo hello >index.html && busybox dd if=/dev/zero of=large bs=1M count=16
busybox nc -ll -p ${COUNT} -e busybox wc -c &
exec busybox httpd -f -p 127.0.0.1:${HTTP} -h /tmp`;

describeKubernetes('the ports of a Pod', () => {
  const hosts = OPEN_HOSTS();
  let namespace: TestNamespace;
  let service: TestService;
  let front: TestService;
  let previews: GrantedPreviews;
  let client: Client;
  let sandbox: string;
  beforeAll(async () => {
    namespace = await openNamespace();
    service = await startTestService({
      ...namespace.service(),
      previews: hosts,
      settings: { stopGraceMs: 1_000 },
    });
    // The process that takes the requests does not have the engine.
    front = await startTestService({ beside: service, worker: false, previews: hosts });
    previews = await servePorts(front, hosts);
    client = await service.newOrg();
    const asked = await client.post(
      '/v1/sandboxes',
      {
        name: 'pod',
        image: { type: 'oci', reference: NODE_IMAGE },
        pull_policy: 'never',
        resources: { vcpus: 1, memory_mib: 128 },
        runtime: { cmd: ['sh', '-c', COMMAND], entrypoint: [] },
      },
      { start: true },
    );
    sandbox = (await untilRunning(client, asked)).id;
  });
  afterAll(async () => {
    await previews.close();
    await destroyAll(service, client);
    await front.close();
    await service.close();
    await namespace.remove();
  });

  test('have previews through another process, which can be revoked', async () => {
    const { body: preview } = await client.post(`/v1/sandboxes/${sandbox}/previews`, { port: HTTP });
    const headers = { authorization: `Bearer ${preview.token}` };
    const get = (path: string, more = headers) =>
      askPreview(previews.port, preview.origin + path, { headers: more });
    await until(
      () => get('/'),
      ({ status, text }) => status === 200 && text === 'hello\n',
    );
    expect((await get('/large')).text).toHaveLength(16 * MIB);
    expect((await get('/', { authorization: 'Bearer skp_wrong' })).status).toBe(401);
    await client.delete(`/v1/sandboxes/${sandbox}/previews/${preview.id}`);
    await until(
      () => get('/'),
      ({ status }) => status === 401,
    );
  });

  test('are forwarded by the command line', async () => {
    const env = { SANDKEEP_URL: front.url, SANDKEEP_API_KEY: client.key };
    const { child, ended, out } = start([...PROGRAM, 'port-forward', 'pod', `0:${COUNT}`], { env });
    const shown = await until(
      async () => out(),
      (seen) => seen.includes('\n'),
      30_000,
    );
    const port = Number(/127\.0\.0\.1:(\d+) /.exec(shown)![1]);
    const socket = connect({ port, host: '127.0.0.1', allowHalfOpen: true });
    socket.end(Buffer.alloc(3 * MIB));
    const counted = await text(socket).catch(String);
    child.kill('SIGINT');
    const { code, err } = await ended;
    expect([counted.trim(), code], err).toEqual([String(3 * MIB), 0]);
  });
});
