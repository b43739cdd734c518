import { randomBytes } from 'node:crypto';
import { request as httpRequest } from 'node:http';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { buildApp } from '../../../src/app.js';
import { listen } from '../../../src/http/listen.js';
import { deleteExpiredKeys } from '../../../src/idempotency/jobs.js';
import { addMillis } from '../../../src/lib/instant.js';
import { sleep } from '../../../src/lib/sleep.js';
import { StoredBytes } from '../../../src/lib/stored-bytes.js';
import { Keyring } from '../../../src/secrets/keyring.js';
import type { Answer } from '../../support/answer.js';
import { makeClient, type Client } from '../../support/client.js';
import { operations } from '../../support/openapi.js';
import { startTestService, type TestService } from '../../support/service.js';
import { smallRequest } from '../../support/sandbox-requests.js';
import { until, untilStatus } from '../../support/polling.js';

let service: TestService;
let client: Client;
beforeAll(async () => {
  service = await startTestService({ simulated: { startMs: 150 } });
  client = await service.newOrg();
});
afterAll(() => service.close());

interface Write {
  method: string;
  path: string;
  body?: unknown;
  query?: Record<string, string | number | boolean>;
}

function send(write: Write, key: string, by = client): Promise<Answer> {
  const { method, path, ...rest } = write;
  return by.request(method, path, { ...rest, headers: { 'idempotency-key': key } });
}

const isReplay = ({ headers }: Answer) => headers.get('idempotency-replayed') === 'true';

async function eventCount(by = client): Promise<number> {
  const { rows } = await service.ctx.pool.query<{ count: number }>(
    'select count(*) from events where org_id = $1',
    [by.org.id],
  );
  return rows[0]!.count;
}

const create = (name: string, query = {}): Write => ({
  method: 'POST',
  path: '/v1/sandboxes',
  body: smallRequest(name),
  query,
});

/** The writes, each for resources that the test made and that do not change by themselves. */
const WRITES: Record<string, (made: { id: string; name: string; volume: string }) => Write> = {
  create_sandbox: ({ name }) => create(`${name}-created`),
  update_sandbox: ({ id, name }) => ({
    method: 'PATCH',
    path: `/v1/sandboxes/${id}`,
    body: { name: `${name}-new` },
  }),
  update_sandbox_by_name: ({ name }) => ({
    method: 'PATCH',
    path: `/v1/sandboxes/by-name/${name}`,
    body: { name: `${name}-new` },
  }),
  start_sandbox: ({ id }) => ({ method: 'POST', path: `/v1/sandboxes/${id}/start`, body: {} }),
  start_by_name: ({ name }) => ({ method: 'POST', path: `/v1/sandboxes/by-name/${name}/start` }),
  stop_sandbox: ({ id }) => ({ method: 'POST', path: `/v1/sandboxes/${id}/stop`, body: {} }),
  stop_by_name: ({ name }) => ({ method: 'POST', path: `/v1/sandboxes/by-name/${name}/stop` }),
  pause_sandbox: ({ id }) => ({ method: 'POST', path: `/v1/sandboxes/${id}/pause`, body: {} }),
  pause_by_name: ({ name }) => ({ method: 'POST', path: `/v1/sandboxes/by-name/${name}/pause` }),
  resume_sandbox: ({ id }) => ({ method: 'POST', path: `/v1/sandboxes/${id}/resume`, body: {} }),
  resume_by_name: ({ name }) => ({ method: 'POST', path: `/v1/sandboxes/by-name/${name}/resume` }),
  restart_sandbox: ({ id }) => ({ method: 'POST', path: `/v1/sandboxes/${id}/restart`, body: {} }),
  restart_sandbox_by_name: ({ name }) => ({ method: 'POST', path: `/v1/sandboxes/by-name/${name}/restart` }),
  delete_sandbox: ({ id }) => ({ method: 'DELETE', path: `/v1/sandboxes/${id}` }),
  delete_by_name: ({ name }) => ({ method: 'DELETE', path: `/v1/sandboxes/by-name/${name}` }),
  create_volume: ({ name }) => ({ method: 'POST', path: '/v1/volumes', body: { name: `${name}-made` } }),
  update_volume: ({ volume }) => ({
    method: 'PATCH',
    path: `/v1/volumes/${volume}`,
    body: { capacity_gib: 1 },
  }),
  delete_volume: ({ volume }) => ({ method: 'DELETE', path: `/v1/volumes/${volume}` }),
  restore_volume: ({ volume }) => ({ method: 'POST', path: `/v1/volumes/${volume}/restore` }),
};

/** `volume-files.test.ts` covers these. */
const FILE_WRITES = [
  'copy_volume_file',
  'delete_volume_file',
  'make_volume_directory',
  'rename_volume_file',
  'write_volume_file',
];

/** `exec/exec.test.ts` and `files/sandbox-files.test.ts` cover these. */
const INSIDE_WRITES = [
  'copy_sandbox_file',
  'delete_sandbox_file',
  'end_sandbox_session',
  'exec_sandbox',
  'make_sandbox_directory',
  'rename_sandbox_file',
  'write_sandbox_file',
].flatMap((operation) => [operation, `${operation}_by_name`]);

/** `keys/routes.test.ts` covers these: repeated answers have no secret. */
const KEY_WRITES = ['create_key', 'revoke_key', 'rotate_key'];

/** `previews/grants.test.ts` covers these: repeated answers have no token. */
const PREVIEW_WRITES = ['create_sandbox_preview', 'revoke_sandbox_preview'];

/** `sandboxes/modifications.test.ts` covers it: it needs a sandbox with secrets. */
const SECRET_WRITES = ['modify_sandbox'];

/** `snapshots/repeated-requests.test.ts` covers these: a snapshot needs a sandbox that has run. */
const SNAPSHOT_WRITES = [
  'create_snapshot',
  'delete_snapshot',
  'delete_snapshot_by_name',
  'import_snapshot',
  'restore_snapshot',
  'fork_sandbox',
  'fork_by_name',
];

/** `templates/templates.test.ts` covers these: the body of a build is no JSON. */
const TEMPLATE_WRITES = ['create_template', 'delete_template'];
/** `budgets/budgets.test.ts` covers these: two of them need a budget. */
const BUDGET_WRITES = ['create_budget', 'delete_budget', 'update_budget'];

const keyed = operations.filter(({ operation }) =>
  (operation as { parameters?: { name: string }[] }).parameters?.some(
    ({ name }) => name === 'Idempotency-Key',
  ),
);

test('every operation that takes a key is covered', () => {
  expect(keyed.map(({ operation }) => operation.operationId).toSorted()).toEqual(
    [
      ...Object.keys(WRITES),
      ...[
        FILE_WRITES,
        INSIDE_WRITES,
        KEY_WRITES,
        PREVIEW_WRITES,
        SECRET_WRITES,
        SNAPSHOT_WRITES,
        TEMPLATE_WRITES,
        BUDGET_WRITES,
      ].flat(),
    ].toSorted(),
  );
});

test.each(Object.keys(WRITES))('%s with a key is executed once', async (operation) => {
  const mine = await service.newOrg();
  const name = operation.replaceAll('_', '-');
  const { body: sandbox } = await mine.post(
    '/v1/sandboxes',
    smallRequest(name),
    /^(stop|restart|pause|resume)/.test(operation) ? { start: true, wait_for: 'running' } : {},
  );
  if (operation.startsWith('resume'))
    await mine.post(`/v1/sandboxes/${sandbox.id}/pause`, {}, { wait_for: 'paused' });
  const { body: volume } = await mine.post('/v1/volumes', { name });
  if (operation === 'restore_volume') await mine.delete(`/v1/volumes/${volume.id}`);
  const write = WRITES[operation]!({ id: sandbox.id, name, volume: volume.id });

  const before = await eventCount(mine);
  const first = await send(write, 'once', mine);
  expect([first.status, isReplay(first)], first.text).toEqual([200, false]);
  // The worker records further events.
  if (/^(start|stop|restart|pause|resume)/.test(operation)) {
    await untilStatus(mine, sandbox.id, /^(stop|pause)/.test(operation) ? 'stopped' : 'running');
  }
  const after = await eventCount(mine);
  expect(after).toBeGreaterThan(before);
  for (let again = 0; again < 3; again += 1) {
    const repeated = await send(write, 'once', mine);
    expect([repeated.status, isReplay(repeated), repeated.text]).toEqual([200, true, first.text]);
  }
  expect(await eventCount(mine)).toBe(after);
});

test('a delete whose answer was lost is answered again with its key, and not found without', async () => {
  const { body } = await client.post('/v1/sandboxes', smallRequest('lost'));
  const write = { method: 'DELETE', path: `/v1/sandboxes/${body.id}` };
  const first = await send(write, 'lost-delete');
  expect((await send(write, 'lost-delete')).body).toEqual(first.body);
  expect((await client.delete(write.path)).status).toBe(404);
  // A different key makes a different request.
  expect((await send(write, 'another-delete')).status).toBe(404);
});

describe('the same key for a different request', () => {
  test.each<[string, Partial<Write>]>([
    ['method', { method: 'DELETE', path: '/v1/sandboxes/by-name/conflict' }],
    ['path', { path: '/v1/volumes', body: { name: 'conflict' } }],
    ['query', { query: { start: true } }],
    ['body', { body: smallRequest('conflict', { labels: { a: 'b' } }) }],
  ])('that differs by its %s is refused and changes nothing', async (_, difference) => {
    const mine = await service.newOrg();
    expect((await send(create('conflict'), 'shared', mine)).status).toBe(200);
    const before = await eventCount(mine);
    const other = await send({ ...create('conflict'), ...difference }, 'shared', mine);
    expect([other.status, other.body.error.code]).toEqual([409, 'idempotency_conflict']);
    expect(await eventCount(mine)).toBe(before);
  });

  test('an organization does not share its keys with another', async () => {
    const stranger = await service.newOrg();
    const [one, two] = await Promise.all([
      send(create('neighbours'), 'popular'),
      send(create('neighbours'), 'popular', stranger),
    ]);
    expect([one.status, two.status, isReplay(one), isReplay(two)]).toEqual([200, 200, false, false]);
    expect(one.body.id).not.toBe(two.body.id);
  });
});

test('a refusal is not stored: the request is retried once its cause is gone', async () => {
  const { body: taken } = await client.post('/v1/sandboxes', smallRequest('mended'));
  expect((await send(create('mended'), 'second-try')).status).toBe(409);
  await client.delete(`/v1/sandboxes/${taken.id}`);
  const made = await send(create('mended'), 'second-try');
  expect([made.status, isReplay(made)]).toEqual([200, false]);
  // The refused request does not keep the key either.
  expect((await send({ method: 'DELETE', path: '/v1/sandboxes/by-name/none' }, 'free')).status).toBe(404);
  expect((await send(create('takes-it'), 'free')).status).toBe(200);
});

test('the service executes one of twenty equal concurrent requests, and answers all', async () => {
  const mine = await service.newOrg();
  for (const write of [
    create('twenty'),
    create('waits', { start: true, wait_for: 'running' }),
    { method: 'POST', path: '/v1/volumes', body: { name: 'twenty' } },
  ]) {
    const answers = await Promise.all(
      Array.from({ length: 20 }, () => send(write, `twenty ${JSON.stringify(write)}`.slice(0, 255), mine)),
    );
    expect(answers.map(({ status }) => status)).toEqual(Array(20).fill(200));
    expect(new Set(answers.map(({ text }) => text)).size).toBe(1);
    expect(answers.filter(isReplay)).toHaveLength(19);
  }
  expect((await mine.get('/v1/sandboxes')).body.data).toHaveLength(2);
});

describe('with wait_for=running', () => {
  const waiting = { start: true, wait_for: 'running', wait_timeout: 90 };

  test('the repeated answer is the final one, whatever happened to the sandbox later', async () => {
    const write = create('final', waiting);
    const first = await send(write, 'final');
    expect(first.body.status).toBe('running');
    await client.post(`/v1/sandboxes/${first.body.id}/stop`, {});
    await untilStatus(client, first.body.id, 'stopped');
    const again = await send(write, 'final');
    expect([isReplay(again), again.text]).toEqual([true, first.text]);
  });

  test('a client cut off during the wait repeats the request and gets the end of the same start', async () => {
    const slow = await startTestService({ simulated: { startMs: 1_200 } });
    try {
      const mine = await slow.newOrg();
      const write = create('cut', waiting);
      const query = new URLSearchParams(
        Object.entries(waiting).map(([name, value]): [string, string] => [name, `${value}`]),
      );
      const cut = httpRequest(`${mine.url}/v1/sandboxes?${query.toString()}`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${mine.key}`,
          'content-type': 'application/json',
          'idempotency-key': 'cut',
        },
      });
      cut.on('error', () => undefined);
      cut.end(JSON.stringify(write.body));
      const { body: admitted } = await until(
        () => mine.get('/v1/sandboxes/by-name/cut'),
        ({ status }) => status === 200,
      );
      cut.destroy();
      await sleep(100);
      const again = await send(write, 'cut', mine);
      expect([again.status, isReplay(again), again.body.id, again.body.status]).toEqual([
        200,
        true,
        admitted.id,
        'running',
      ]);
      const events = await mine.get('/v1/events', { event_type: 'sandbox_start_requested' });
      expect(events.body.data).toHaveLength(1);
    } finally {
      await slow.close();
    }
  });

  test('a wait that timed out is answered, and the answer is repeated', async () => {
    const slow = await startTestService({ worker: false });
    try {
      const mine = await slow.newOrg();
      const write = create('impatient', { start: true, wait_for: 'running', wait_timeout: 0 });
      const first = await send(write, 'impatient', mine);
      expect(first.body.status).toBe('starting');
      await mine.post(`/v1/sandboxes/${first.body.id}/stop`, {});
      expect((await send(write, 'impatient', mine)).text).toBe(first.text);
    } finally {
      await slow.close();
    }
  });
});

test('a request cut off before its answer is executed completely or not at all', async () => {
  const mine = await service.newOrg();
  for (let round = 0; round < 30; round += 1) {
    const write = create(`cut-${round}`);
    const cut = httpRequest(`${mine.url}/v1/sandboxes`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${mine.key}`,
        'content-type': 'application/json',
        'idempotency-key': write.path + round,
      },
    });
    cut.on('error', () => undefined);
    cut.end(JSON.stringify(write.body));
    await sleep(round);
    cut.destroy();
    expect((await send(write, write.path + round, mine)).status).toBe(200);
  }
  const events = await mine.get('/v1/events', { event_type: 'sandbox_created', limit: 100 });
  expect(events.body.data).toHaveLength(30);
});

describe('after a day', () => {
  const ago = (millis: number) =>
    service.ctx.pool.query(`update idempotency_keys set created_at = $2 where org_id = $1`, [
      client.org.id,
      addMillis(service.ctx.now(), -millis),
    ]);
  const DAY = 24 * 3_600_000;

  test('a key can be used for another request, and not earlier', async () => {
    const other = await startTestService({ worker: false });
    try {
      const mine = await other.newOrg();
      const { body } = await send(create('day'), 'day', mine);
      const shift = (millis: number) =>
        other.ctx.pool.query('update idempotency_keys set created_at = $1', [
          addMillis(other.ctx.now(), -millis),
        ]);
      await shift(DAY - 60_000);
      expect(isReplay(await send(create('day'), 'day', mine))).toBe(true);
      await shift(DAY + 1_000);
      // The request is executed: the name is taken.
      expect((await send(create('day'), 'day', mine)).body.error.code).toBe('name_already_exists');
      const deleted = await send({ method: 'DELETE', path: `/v1/sandboxes/${body.id}` }, 'day', mine);
      expect([deleted.status, isReplay(deleted)]).toEqual([200, false]);
    } finally {
      await other.close();
    }
  });

  test('a key is deleted', async () => {
    await send({ method: 'POST', path: '/v1/volumes', body: { name: 'old-key' } }, 'old-key');
    await ago(DAY + 1_000);
    await send({ method: 'POST', path: '/v1/volumes', body: { name: 'young-key' } }, 'young-key');
    await deleteExpiredKeys(service.ctx, new AbortController().signal);
    const { rows } = await service.ctx.pool.query(
      'select key, answer from idempotency_keys where org_id = $1',
      [client.org.id],
    );
    expect(rows.map(({ key }) => key)).toEqual(['young-key']);
  });
});

test.each([
  ['no text', ''],
  ['more than 255 characters', 'x'.repeat(256)],
  ['a control character', 'a\tb'],
  ['characters beyond ASCII', 'schl\u00fcssel'],
])('a key of %s is refused by the name of the header', async (_, key) => {
  const before = await eventCount();
  const { status, body } = await send(create('unkeyed'), key);
  expect([status, body.error.code, body.error.details]).toEqual([
    400,
    'invalid_request',
    { parameter: 'Idempotency-Key' },
  ]);
  expect(body.error.message).toContain('Idempotency-Key');
  expect(await eventCount()).toBe(before);
});

test('the longest key with the widest range of characters is accepted', async () => {
  const key = `~ !"#$%&'()*+,-./:;<=>?@[]^_{|} ${'x'.repeat(223)}`;
  expect(key).toHaveLength(255);
  expect(isReplay(await send(create('strange'), key))).toBe(false);
  expect(isReplay(await send(create('strange'), key))).toBe(true);
});

test('a request is recognised after a rotation of the secret keys, and a different one is still refused', async () => {
  const old = Keyring.makeKey();
  const keys = (...texts: string[]) => Keyring.parse(texts.join('\n'), 'a test');
  let keyring = keys(old);
  const rotating = await startTestService({ worker: false });
  const app = await buildApp({ ...rotating.ctx, keyring: () => keyring });
  try {
    const mine = await rotating.newOrg();
    const by = makeClient(await listen(app, { host: '127.0.0.1', port: 0 }), mine);
    const waiting = create('rotated-wait', { start: true, wait_for: 'running', wait_timeout: 1 });
    const waited = send(waiting, 'wait', by);
    const first = await send(create('rotated'), 'rotated', by);
    keyring = keys(Keyring.makeKey(), old);
    expect((await send(create('rotated'), 'rotated', by)).text).toBe(first.text);
    expect((await send(create('other'), 'rotated', by)).body.error.code).toBe('idempotency_conflict');
    expect((await send(waiting, 'wait', by)).text).toBe((await waited).text);
    // Without the key that made its digest no request is recognised. The service refuses it, so nothing is executed
    // twice.
    keyring = keys(Keyring.makeKey());
    expect((await send(create('rotated'), 'rotated', by)).status).toBe(409);
  } finally {
    await app.close();
    await rotating.close();
  }
});

test('a read ignores the key, and the store of keys holds no request bodies', async () => {
  expect((await client.request('GET', '/v1/volumes', { headers: { 'idempotency-key': '' } })).status).toBe(
    200,
  );
  const canary = 'canary-in-the-body';
  const secrets = {
    entries: [
      {
        env_var: 'TOKEN',
        placeholder: '$MSB_TOKEN',
        value: canary,
        allowed_hosts: [{ type: 'any' }],
      },
    ],
  };
  const write = { ...create('secretive'), body: smallRequest('secretive', { network: { secrets } }) };
  expect((await send(write, 'secretive')).status).toBe(200);
  const { rows } = await service.ctx.pool.query<{ text: string }>(
    "select k::text || encode(k.fingerprint, 'escape') as text from idempotency_keys k where key = 'secretive'",
  );
  expect(rows).toHaveLength(1);
  expect(rows[0]!.text).not.toContain(canary);
});

test('an organization has a bounded part of the database for long answers, and earlier answers are still given', async () => {
  const [by, other] = [await service.newOrg(), await service.newOrg()];
  // Random text, which PostgreSQL cannot compress.
  const env = Array.from({ length: 6 }, (_, index) => ({
    key: `V${index}`,
    value: randomBytes(3_000).toString('base64'),
  }));
  const storedAnswers = new StoredBytes({ freeBytes: 4_096, maxBytes: 60_000 });
  const app = await buildApp({ ...service.ctx, storedAnswers });
  try {
    const url = await listen(app, { host: '127.0.0.1', port: 0 });
    const [own, foreign] = [makeClient(url, by), makeClient(url, other)];
    const { body } = await own.post('/v1/sandboxes', smallRequest('long', { env }));
    const patch = { method: 'PATCH', path: `/v1/sandboxes/${String(body.id)}`, body: {} };
    const statuses: number[] = [];
    for (let count = 0; count < 8; count += 1) {
      statuses.push((await send(patch, `key ${count}`, own)).status);
    }
    expect(statuses).toEqual([200, 200, 200, 429, 429, 429, 429, 429]);
    const refused = await send(patch, 'new', own);
    expect(refused.body.error.message).toContain('send the request without the header');
    expect(refused.headers.get('retry-after')).toBe('60');
    expect(isReplay(await send(patch, 'key 0', own))).toBe(true);
    expect((await own.request('PATCH', patch.path, { body: {} })).status).toBe(200);
    expect((await send(create('another'), 'short', foreign)).status).toBe(200);
    await own.request('DELETE', patch.path);
  } finally {
    await app.close();
  }
});
