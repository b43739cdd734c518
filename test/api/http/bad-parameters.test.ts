import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { OPERATIONS, type Fixture } from '../../support/operation-requests.js';
import type { Client } from '../../support/client.js';
import { allows, operations } from '../../support/openapi.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { startTestService, type TestService } from '../../support/service.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
});
afterAll(() => service.close());

const LISTS = ['/v1/sandboxes', '/v1/events', '/v1/members'];

/** Checks that the refusal names the parameter in its field and its message. */
async function expectRefused(path: string, query: string, parameter: string): Promise<void> {
  const { status, body } = await client.request('GET', path, { query });
  expect([status, body.error?.code, body.error?.details], `${path}?${query}`).toEqual([
    400,
    'invalid_request',
    { parameter },
  ]);
  expect(body.error.message).toContain(parameter);
}

describe('query parameters', () => {
  const badLimits = [
    '1e999',
    '1e1',
    '0x10',
    '%205',
    '0',
    '101',
    '-1',
    '1.5',
    'x',
    '',
    '99999999999999999999',
    'NaN',
    'true',
    '1&limit=2',
  ];
  test.each(LISTS.flatMap((path) => badLimits.map((value) => [path, value] as const)))(
    '%s refuses limit=%s',
    (path, value) => expectRefused(path, `limit=${value}`, 'limit'),
  );

  const badCursors = ['', 'x', 'AAAA', '%00', 'é', 'e30', '!!!!', 'a'.repeat(5000), 'x&cursor=y'];
  test.each(LISTS.flatMap((path) => badCursors.map((value) => [path, value] as const)))(
    '%s refuses cursor=%s',
    (path, value) => expectRefused(path, `cursor=${value}`, 'cursor'),
  );

  const badLabels = [
    '',
    'x',
    '[]',
    '[1]',
    '1',
    'null',
    '"a"',
    '{',
    '{"a":1}',
    '{"a":null}',
    '{"a":{}}',
    '{"a":"\\u0000"}',
    '{"a":"1","a":"2"}',
    '{"a":"1","a":"1"}',
    '{ "a" : "1" , "\\u0061" : "1" }',
  ];
  test.each(badLabels)('labels=%s is refused', (value) =>
    expectRefused('/v1/sandboxes', `labels=${encodeURIComponent(value)}`, 'labels'),
  );

  test.each(['{}', '{"a":"b"}', '{"a":"\\":","b:":"\\\\","c\\"":"\\"c\\":"}', '{"__proto__":"x"}'])(
    'labels=%s is accepted',
    async (labels) => {
      expect((await client.get('/v1/sandboxes', { labels })).status).toBe(200);
    },
  );

  const badTimes = [
    '',
    'x',
    '2026',
    '2026-11-21',
    '2026-11-21T10:00:00',
    '2026-02-30T00:00:00Z',
    '2026-11-21T25:00:00Z',
  ];
  const worseTimes = [
    '0000-01-01T00:00:00Z',
    '-001-01-01T00:00:00Z',
    '10000-01-01T00:00:00Z',
    'now',
    '1700000000',
    '%00',
  ];
  test.each([...badTimes, ...worseTimes])('the time %s is refused', async (value) => {
    await expectRefused('/v1/sandboxes', `created_after=${value}`, 'created_after');
    await expectRefused('/v1/sandboxes', `created_before=${value}`, 'created_before');
    await expectRefused('/v1/events', `since=${value}`, 'since');
    await expectRefused('/v1/events', `until=${value}`, 'until');
    if (value === '2026-11-21') return;
    await expectRefused('/v1/billing/usage/sandbox', `since=${value}`, 'since');
    await expectRefused('/v1/billing/usage/storage', `until=${value}`, 'until');
  });

  test('usage refuses a range that is empty, reversed or longer than 366 days', async () => {
    for (const path of ['/v1/billing/usage/sandbox', '/v1/billing/usage/storage']) {
      await expectRefused(path, 'since=2026-01-02&until=2026-01-01', 'since');
      await expectRefused(path, 'since=2026-01-01&until=2026-01-01', 'since');
      await expectRefused(path, 'since=2024-01-01&until=2025-01-02', 'since');
      await expectRefused(path, 'until=2000-01-01', 'until');
      expect((await client.request('GET', path, { query: 'since=2024-01-01&until=2025-01-01' })).status).toBe(
        200,
      );
    }
  });

  test('routes other than usage refuse values that they do not know', async () => {
    await expectRefused('/v1/sandboxes', 'status=paused', 'status');
    await expectRefused('/v1/sandboxes', 'status=', 'status');
    await expectRefused('/v1/sandboxes', 'sort=slug', 'sort');
    await expectRefused('/v1/sandboxes', 'name_prefix=', 'name_prefix');
    await expectRefused('/v1/sandboxes', 'name_contains=', 'name_contains');
    await expectRefused('/v1/sandboxes', `name_contains=${'a'.repeat(129)}`, 'name_contains');
    await expectRefused('/v1/events', 'event_type=', 'event_type');
    await expectRefused('/v1/events', 'event_type=!', 'event_type');
    await expectRefused('/v1/events', 'actor_kind=robot', 'actor_kind');
    await expectRefused('/v1/events', 'resource_id=1', 'resource_id');
    await expectRefused('/v1/events', 'since=2026-01-02T00:00:00Z&until=2026-01-01T00:00:00Z', 'until');
  });

  test('an unknown event type is refused on every route, with the nearest known type', async () => {
    for (const path of ['/v1/events', '/v1/events/export', '/v1/events/stream']) {
      await expectRefused(path, 'event_type=bogus', 'event_type');
      await expectRefused(path, 'event_type=sandbox_started&event_type=!bogus', 'event_type');
    }
    const misspelt = await client.get('/v1/events', { event_type: 'sandbox_start' });
    expect(misspelt.body.error.message).toBe(
      'event_type: there is no event type "sandbox_start"; did you mean "sandbox_started"? docs/audit-events.md lists them',
    );
    const hook = await client.post('/v1/webhooks', {
      url: 'https://example.com/hook',
      event_types: ['volume_make'],
    });
    expect([hook.status, hook.body.error.details]).toEqual([400, { field: 'event_types' }]);
    const stranger = await client.get('/v1/events', { event_type: 'something_else_entirely' });
    expect(stranger.body.error.message).not.toContain('did you mean');
  });

  test('an unknown query parameter is refused on every route', async () => {
    const thing = { id: uuidv7(), name: 'x', delivery: uuidv7() };
    const nothing = {
      sandbox: thing,
      volume: thing,
      event: thing,
      key: thing,
      credential: thing,
      budget: thing,
      webhook: thing,
    };
    for (const { method, path, operation } of operations) {
      const {
        path: concrete,
        query,
        body: right,
      } = OPERATIONS[operation.operationId]!(nothing as unknown as Fixture);
      const options = {
        query: { ...query, surprise: '1' },
        ...(right === undefined ? {} : { body: right }),
      };
      const { status, body } = await client.request(method, concrete, options);
      expect([status, body.error.details], `${method} ${path}`).toEqual([400, { parameter: 'surprise' }]);
    }
  });

  test('an id that is not a UUID is refused on every route that takes one', async () => {
    for (const { method, path } of operations.filter((operation) => /id\}/.test(operation.path))) {
      const [, name = ''] = /\{(\w*id)\}/.exec(path)!;
      for (const bad of [
        '1',
        `urn:uuid:${uuidv7()}`,
        'x'.repeat(2000),
        '%00',
        `${uuidv7()}x`,
        "'%20or%201=1",
        '..%2f..',
      ]) {
        const { status, body } = await client.request(
          method,
          path.replace(`{${name}}`, bad).replace('{port}', '80'),
          ['POST', 'PUT'].includes(method) ? { body: {} } : {},
        );
        expect([status, body.error.code, body.error.details], `${method} ${path} ${bad}`).toEqual([
          400,
          'invalid_request',
          { parameter: name },
        ]);
      }
    }
  });
});

describe('the document allows the names of bodies that the service takes, and no others', () => {
  const labels = (count: number) =>
    Object.fromEntries(Array.from({ length: count }, (_, n) => [`l${n}`, 'v']));
  const sandbox = (more: object) => smallRequest(uuidv7(), { ...more });
  const LONG = 'a'.repeat(63);
  test.each([
    [
      'CreateSandboxRequest',
      '/v1/sandboxes',
      [
        ...['a', 'A.b_c-', 'a'.repeat(128), '', '-a', 'a'.repeat(129), 'a b', 'ä', 'a\n'].map((name) =>
          sandbox({ name }),
        ),
        ...['abc', 'a-b', LONG, 'ab', 'a--b', 'Abc', `${LONG}a`, null].map((slug) => sandbox({ slug })),
        ...['a', 'A-1.b', `${LONG}.`, `${LONG}.a`, `${LONG}a`, '-a', 'a..b', null].map((hostname) =>
          sandbox({ runtime: { hostname } }),
        ),
        ...[
          labels(64),
          labels(65),
          { '': 'v' },
          { a: '' },
          { ['k'.repeat(256)]: 'v' },
          { ['k'.repeat(257)]: 'v' },
        ].map((each) => sandbox({ labels: each })),
        ...[1024, 1025].map((length) => sandbox({ labels: { a: 'v'.repeat(length) } })),
      ],
    ],
    [
      'CreateVolumeRequest',
      '/v1/volumes',
      ['a', 'a-1', LONG, '', 'a-', 'A', `${LONG}a`].map((name) => ({ name })),
    ],
  ] as const)('%s', async (component, path, bodies) => {
    for (const body of bodies) {
      const { status } = await client.post(path, body);
      expect([allows(component, body), body]).toEqual([status === 200, body]);
    }
  });

  test.each([
    ['UpdateSandboxRequest', { name: '-a' }, { name: 'a' }],
    ['UpdateSandboxRequest', { slug: 'ab' }, { slug: null }],
    ['UpdateSandboxRequest', { labels: labels(65) }, { labels: null }],
    ['UpdateVolumeRequest', { labels: labels(65) }, { labels: labels(64) }],
    [
      'CreateApiKeyRequest',
      { name: 'a', scopes: ['sandboxes:read'], labels: labels(9) },
      { name: 'a', scopes: ['sandboxes:read'] },
    ],
  ])('%s', (component, refused, taken) => {
    expect([allows(component, refused), allows(component, taken)]).toEqual([false, true]);
  });
});
