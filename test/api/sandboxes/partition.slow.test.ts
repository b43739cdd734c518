import { inject, expect, onTestFinished, test, vi } from 'vitest';
import { CutProxy } from '../../support/cut-proxy.js';
import { until } from '../../support/polling.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startForTest } from '../../support/service.js';

const settings = { workerLeaseMs: 1_500 };
const running = { start: true, wait_for: 'running' };
/** The service gives up a silent database after some ten seconds. A busy machine takes longer. */
const ANSWERS_WITHIN_MS = 60_000;

test('a process that the network separates from the database stops to act, answers 503, and comes back', async () => {
  const proxy = await makeProxy();
  const cutOff = await startForTest({
    settings,
    through: (database) => {
      if (!('url' in database)) throw new Error('the clone of a template has a URL');
      // The tests run as a user without a password, and the URL may name a socket.
      const [, account = '', name = ''] =
        /^postgres(?:ql)?:\/\/([^@]*)@[^/]*\/([^?]*)/.exec(database.url) ?? [];
      return Promise.resolve({ url: `postgres://${account}@127.0.0.1:${proxy.port}/${name}` });
    },
  });
  const client = await cutOff.newOrg();
  expect((await client.post('/v1/sandboxes', smallRequest('before'), running)).body.status).toBe('running');
  const other = await startForTest({ settings, beside: cutOff, sameEngine: true });
  const there = { ...client, url: other.url };
  const headers = { authorization: `Bearer ${client.key}` };
  const get = (url: string, path: string) => fetch(`${url}${path}`, { headers });

  proxy.cut();
  const made = await fetch(`${there.url}/v1/sandboxes?start=true`, {
    method: 'POST',
    body: JSON.stringify(smallRequest('during')),
    headers: { ...headers, 'content-type': 'application/json' },
  });
  const { id } = (await made.json()) as { id: string };
  const acts = (['start', 'stop', 'destroy'] as const).map((call) => vi.spyOn(cutOff.runtime, call));
  await until(
    async () => ((await (await get(there.url, `/v1/sandboxes/${id}`)).json()) as { status: string }).status,
    (status) => status === 'running',
  );

  // Neither a read nor a write hangs, and the process says that it is not ready.
  const begun = performance.now();
  const answers = await Promise.all([
    get(cutOff.url, '/v1/sandboxes'),
    get(cutOff.url, `/v1/sandboxes/${id}`),
    fetch(`${cutOff.url}/v1/volumes`, {
      method: 'POST',
      body: '{"name":"during"}',
      headers: { ...headers, 'content-type': 'application/json' },
    }),
    fetch(`${cutOff.url}/readyz`),
  ]);
  expect(answers.map(({ status }) => status)).toEqual([503, 503, 503, 503]);
  expect(performance.now() - begun).toBeLessThan(ANSWERS_WITHIN_MS);
  expect((await fetch(`${cutOff.url}/healthz`)).status).toBe(200);
  expect(acts.map(({ mock }) => mock.calls.length)).toEqual([0, 0, 0]);

  proxy.heal();
  await until(
    async () => (await fetch(`${cutOff.url}/readyz`)).status,
    (status) => status === 200,
  );
  expect((await get(cutOff.url, `/v1/sandboxes/${id}`)).status).toBe(200);
  // The other process holds the lease, and this one stands by.
  expect(acts.map(({ mock }) => mock.calls.length)).toEqual([0, 0, 0]);
});

async function makeProxy(): Promise<CutProxy> {
  const server = inject('server');
  const target =
    'socket' in server
      ? { path: `${server.socket}/.s.PGSQL.5432` }
      : { host: new URL(server.url).hostname, port: Number(new URL(server.url).port || 5432) };
  const proxy = await CutProxy.make(target);
  onTestFinished(() => proxy.close());
  return proxy;
}
