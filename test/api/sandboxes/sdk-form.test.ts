import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../../support/client.js';
import { fullRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

const SDK = 'microsandbox-sdk/0.6.18';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({ simulated: { startMs: 0, stopMs: 0 } });
  client = await service.newOrg();
  await client.post('/v1/volumes', { name: 'data' });
});
afterAll(() => service.close());

/** The answer for a user agent. The contract describes only the form for other agents. */
async function answerFor(userAgent: string, method: string, path: string, body?: unknown) {
  const response = await fetch(`${client.url}${path}`, {
    method,
    headers: {
      authorization: `Bearer ${client.key}`,
      'user-agent': userAgent,
      ...(body === undefined ? {} : { 'content-type': 'application/json' }),
    },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  return { status: response.status, body: (await response.json()) as any };
}

const FORM = {
  image: { type: 'oci', reference: expect.stringContaining('registry.example.com:5000/team/app:1.2') },
  resources: { vcpus: 2, memory_mib: 1024 },
  runtime: {
    cmd: ['serve', '--all'],
    entrypoint: ['/bin/app'],
    user: '1000:1000',
    workdir: '/srv',
    shell: '/bin/sh',
  },
  labels: { team: 'ml', gpu: '' },
  lifecycle: { ephemeral: false, idle_timeout_secs: 600, max_duration_secs: 3600 },
};

test('every answer with a sandbox has the form of requests for official SDKs, and of the contract for others', async () => {
  const { idle_timeout_secs, max_duration_secs } = FORM.lifecycle;
  const request = { ...fullRequest('one', 'data'), lifecycle: { idle_timeout_secs, max_duration_secs } };
  const created = await answerFor(SDK, 'POST', '/v1/sandboxes', request);
  expect(created.status, JSON.stringify(created.body)).toBe(200);
  const { id } = created.body;
  const paths = [`/v1/sandboxes/${id}`, '/v1/sandboxes/by-name/one'];
  const requests: [method: string, path: string, body?: unknown][] = [
    ...paths.map((path): [string, string] => ['GET', path]),
    ...paths.flatMap((path): [string, string, unknown][] => [
      ['PATCH', path, { labels: FORM.labels }],
      ['POST', `${path}/start?wait_for=running`, {}],
      ['POST', `${path}/restart?wait_for=running`, {}],
      ['POST', `${path}/stop?wait_for=stopped`, {}],
    ]),
  ];
  expect(created.body.spec).toEqual(FORM);
  for (const [method, path, body] of requests) {
    const answer = await answerFor(SDK, method, path, body);
    expect(answer.body, `${method} ${path}`).toMatchObject({ id, name: 'one' });
    expect(answer.body.spec, `${method} ${path}`).toEqual(FORM);
  }
  const list = await answerFor(SDK, 'GET', '/v1/sandboxes');
  expect(list.body).toMatchObject({ has_more: false, next_cursor: null });
  expect(list.body.data[0].spec).toEqual(FORM);
  expect((await answerFor(SDK, 'GET', '/v1/sandboxes/by-name/two')).body.error.code).toBe(
    'sandbox_not_found',
  );

  for (const agent of ['curl/8.0', 'microsandbox', 'x microsandbox-sdk/0.6.18']) {
    const { body } = await answerFor(agent, 'GET', paths[0]!);
    expect(body.spec).toMatchObject({ image: request.image.reference, env: [{ key: 'A', value: '2' }, {}] });
  }
});
