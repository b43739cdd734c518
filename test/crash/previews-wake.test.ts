import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { afterAll, beforeAll, expect } from 'vitest';
import { launch as launchBrowser, testInBrowser } from '../console/browser.js';
import { makeClient, type Client } from '../support/client.js';
import { describeDocker, docker, IMAGE, makeImage, SOCKET } from '../support/docker.js';
import { until as poll, untilStatus } from '../support/polling.js';
import {
  cleanUp,
  inDatabase,
  kill,
  launch,
  makeFolder,
  ready,
  stop,
  until,
  type Served,
} from '../support/processes.js';

describeDocker('kill -9 of a service that wakes a sandbox', () => {
  let folder: string;
  let service: Served;
  let key: string;
  let client: Client;
  beforeAll(async () => {
    makeImage();
    folder = makeFolder();
    service = await serve();
    key = service.firstKey!;
    client = clientOf();
  });
  afterAll(async () => {
    const { body } = await client.get('/v1/sandboxes');
    for (const { id } of body.data) {
      await client.delete(`/v1/sandboxes/${id}`);
      await until('the container is gone', async () => {
        const label = [`dev.sandkeep.sandbox=${id}`];
        return (await docker.listContainers({ all: true, filters: { label } })).length === 0;
      });
    }
    await stop(service);
    await cleanUp(folder);
  });

  function serve(): Promise<Served> {
    const runtime = ['--runtime', 'docker', '--docker-socket', SOCKET, '--docker-network', 'none'];
    const previews = ['--preview-host', '127.0.0.1', '--preview-port', '0'];
    const args = ['serve', '--json', '--port', '0', '--data-dir', folder, '--log-level', 'warn'];
    return ready(launch([...args, ...previews, ...runtime]), folder);
  }
  const clientOf = () => makeClient(service.url, { org: { id: '', name: '', slug: '' }, key, keyId: '' });

  /** Resolves with the answer, or with the code of the broken connection. */
  async function ask(origin: string, token: string): Promise<{ status?: number; text: string }> {
    const { host, port } = new URL(origin);
    const headers = { host, authorization: `Bearer ${token}`, prefer: 'wait=60' };
    const sent = httpRequest({ host: '127.0.0.1', port, agent: false, headers });
    sent.end();
    try {
      const [answer] = await once(sent, 'response');
      let text = '';
      for await (const chunk of answer) text += String(chunk);
      return { status: answer.statusCode, text };
    } catch (error) {
      return { text: String((error as NodeJS.ErrnoException).code) };
    }
  }

  testInBrowser(
    'loses the waiting request and not the start, and the next service answers in the same run',
    async () => {
      const { body: sandbox } = await client.post('/v1/sandboxes', {
        name: 'web',
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        runtime: { cmd: ['sh', '-c', 'echo hello > /tmp/index.html; exec busybox httpd -f -p 8000 -h /tmp'] },
        resources: { memory_mib: 64 },
        lifecycle: { wake_on_request: true },
      });
      const { body: preview } = await client.post(`/v1/sandboxes/${sandbox.id}/previews`, { port: 8000 });
      const cut = ask(preview.origin, preview.token);
      const runs = async () =>
        inDatabase(folder, async (database) => {
          const { rows } = await database.query('select id, end_reason from runs where sandbox_id = $1', [
            sandbox.id,
          ]);
          return rows;
        });
      await until('the start is admitted', async () => (await runs()).length === 1);
      kill('SIGKILL', service.pid);
      await service.exited;
      expect((await cut).text).toMatch(/^(ECONNRESET|hello\n)$/);

      service = await serve();
      client = clientOf();
      const { body: again } = await client.get(`/v1/sandboxes/${sandbox.id}/previews/${preview.id}`);
      // On a busy machine a start takes longer than a request may wait.
      const askWaiting = async () =>
        poll(
          () => ask(again.origin, preview.token),
          ({ status }) => status !== 503,
        );
      const answers = await Promise.all(Array.from({ length: 10 }, askWaiting));
      expect(new Set(answers.map(({ status, text }) => `${status} ${text}`))).toEqual(
        new Set(['200 hello\n']),
      );
      await untilStatus(client, sandbox.id, 'running');
      expect(await runs()).toMatchObject([{ end_reason: null }]);

      // A browser that opens the link of a sandbox that sleeps.
      await client.post(`/v1/sandboxes/${sandbox.id}/stop`, {}, { wait_for: 'stopped' });
      const { body: link } = await client.post(`/v1/sandboxes/${sandbox.id}/previews`, { port: 8000 });
      const browser = await launchBrowser();
      try {
        const page = await browser.newPage();
        // A start takes longer than the default of 30 seconds while other tests run.
        page.setDefaultTimeout(120_000);
        await page.goto(link.url);
        await page.getByText('hello').waitFor();
      } finally {
        await browser.close();
      }
      expect(await runs()).toHaveLength(2);
    },
  );
});
