import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { sleep } from '../../../src/lib/sleep.js';
import { changeMember } from '../../../src/members/change.js';
import type { MemberRow } from '../../../src/members/queries.js';
import { removeMember } from '../../../src/members/remove.js';
import { makeClient, type Client } from '../../support/client.js';
import { byOperator, newMember, signInMember } from '../../support/members.js';
import { openRaw, requestHead } from '../../support/raw-connection.js';
import { startTestService, type TestService } from '../../support/service.js';
import { until } from '../../support/polling.js';

let service: TestService;
let owner: Client;
beforeAll(async () => {
  service = await startTestService({ worker: false, settings: { keyUseWriteMs: 20 } });
  owner = await service.newOrg();
});
afterAll(() => service.close());

const NEW_KEY = { name: 'planted', scopes: ['org:admin'] };

async function makeKey(): Promise<Client> {
  const { body } = await owner.post('/v1/keys', { name: 'stolen', scopes: ['org:admin'] });
  return makeClient(service.url, { org: owner.org, key: body.key, keyId: body.id });
}

const works = async (key: string) => (await owner.request('GET', '/v1/me/org', { key })).status === 200;

async function planted(): Promise<number> {
  const { body } = await owner.get('/v1/keys', { limit: 100 });
  return body.data.filter(({ name }: any) => name === NEW_KEY.name).length;
}

/**
 * Sends a request without the end of its body, and waits until its key was checked. Returns a function that sends the
 * end.
 */
async function hold(
  thief: Client,
  method: string,
  path: string,
  content: unknown,
): Promise<() => Promise<[number, string]>> {
  const body = JSON.stringify(content);
  const { socket, whole } = await openRaw(service.url);
  const headers = ['connection: close', 'content-type: application/json', `content-length: ${body.length}`];
  socket.write(requestHead(`${method} ${path}`, thief.key, ...headers) + body.slice(0, -1));
  await until(
    () => owner.get(`/v1/keys/${thief.keyId}`),
    (answer) => answer.body.last_used_at !== null,
  );
  return async () => {
    socket.write(body.slice(-1));
    const text = await whole;
    const answer = text.slice(text.indexOf('\r\n\r\n'));
    return [Number(/^HTTP\/1\.1 (\d+)/.exec(text)?.[1]), text === '' ? '' : JSON.parse(answer).error?.code];
  };
}

describe('a request with a delayed body', () => {
  test('creates no key with a secret that was replaced meanwhile', async () => {
    const thief = await makeKey();
    const finish = await hold(thief, 'POST', '/v1/keys', NEW_KEY);
    await owner.post(`/v1/keys/${thief.keyId}/rotate`, { overlap_secs: 3600 });
    expect(await finish()).toEqual([403, 'key_exceeds_caller']);
    expect(await planted()).toBe(0);
  });

  test('rotates no key with a secret that ended meanwhile', async () => {
    const thief = await makeKey();
    const path = `/v1/keys/${thief.keyId}/rotate`;
    const finish = await hold(thief, 'POST', path, { overlap_secs: 0 });
    const { body } = await owner.post(path, { overlap_secs: 0 });
    expect(await finish()).toEqual([401, 'invalid_api_key']);
    expect(await works(body.key)).toBe(true);
  });

  test('creates and revokes no key with a key that was revoked meanwhile, and is answered', async () => {
    const thief = await makeKey();
    const victim = await makeKey();
    const finish = [
      await hold(thief, 'POST', '/v1/keys', NEW_KEY),
      await hold(thief, 'DELETE', `/v1/keys/${victim.keyId}`, {}),
    ];
    await owner.delete(`/v1/keys/${thief.keyId}`);
    // The revocation check of open answers has run by now. This answer survives it, as it may hold the only copy of a
    // secret.
    await sleep(1_500);
    for (const each of finish) expect(await each()).toEqual([401, 'invalid_api_key']);
    expect([await planted(), await works(victim.key)]).toEqual([0, true]);
  });
});

test.each<[string, number, (member: MemberRow) => Promise<unknown>]>([
  ['removed', 401, (member) => removeMember(service.ctx.pool, owner.org.id, member, byOperator())],
  [
    'made a developer of some sandboxes',
    403,
    (member) => {
      const access = { role: 'developer', labels: { team: 'ml' } } as const;
      return changeMember(service.ctx.pool, owner.org.id, member, access, byOperator());
    },
  ],
])('an administrator that was %s before the end of the body creates no key', async (_, refused, change) => {
  const { pool } = service.ctx;
  const member = await newMember(service, owner.org.id, 'admin');
  const { cookie, csrf } = await signInMember(service, owner.org.id, member);
  await pool.query(
    `update console_sessions set idle_at = now() + interval '30 minutes' where member_id = $1`,
    [member.id],
  );
  // The developer has the scopes of the key, but may make none.
  const body = JSON.stringify({ name: member.id, scopes: ['sandboxes:exec'] });
  const { socket, whole } = await openRaw(service.url);
  const head = [
    'POST /v1/keys HTTP/1.1',
    `host: ${new URL(service.url).host}`,
    `cookie: ${cookie}`,
    `x-csrf-token: ${csrf}`,
    'connection: close',
    'content-type: application/json',
    `content-length: ${body.length}`,
  ];
  socket.write(`${head.join('\r\n')}\r\n\r\n${body.slice(0, -1)}`);
  // The use of the session is written after its check.
  await until(
    () =>
      pool.query(
        `select from console_sessions where member_id = $1 and idle_at > now() + interval '1 hour'`,
        [member.id],
      ),
    ({ rowCount }) => rowCount === 1,
  );
  await change(member);
  socket.write(body.slice(-1));
  expect(await whole).toMatch(new RegExp(`^HTTP/1\\.1 ${refused} `));
  const { body: keys } = await owner.get('/v1/keys', { limit: 100 });
  expect(keys.data.filter(({ name }: any) => name === member.id)).toEqual([]);
});

test.each([
  [0, 401],
  [60, 403],
])(
  'concurrent rotations of a key by itself, with an overlap of %d s, succeed once',
  async (overlap_secs, refused) => {
    for (let round = 0; round < 5; round += 1) {
      const self = await makeKey();
      const path = `/v1/keys/${self.keyId}/rotate`;
      const answers = await Promise.all(Array.from({ length: 3 }, () => self.post(path, { overlap_secs })));
      const statuses = answers.map(({ status }) => status).toSorted((a, b) => a - b);
      expect(statuses).toEqual([200, refused, refused]);
      const { key } = answers.find(({ status }) => status === 200)!.body;
      expect((await self.request('POST', path, { key, body: {} })).status).toBe(200);
    }
  },
);

test('keys that create keys and revoke each other concurrently do not deadlock', async () => {
  const [one, two] = [await makeKey(), await makeKey()];
  const answers = await Promise.all([
    ...Array.from({ length: 6 }, () => one.post('/v1/keys', { ...NEW_KEY, name: 'beside' })),
    one.delete(`/v1/keys/${two.keyId}`),
    two.delete(`/v1/keys/${one.keyId}`),
  ]);
  const revocations = answers.slice(-2).map(({ status }) => status);
  // The later request was sent with a key that was revoked by then.
  expect(revocations.toSorted((a, b) => a - b)).toEqual([200, 401]);
  const { body } = await owner.get('/v1/keys', { limit: 100 });
  const revoked = body.data.find(({ id }: any) => id === one.keyId).revoked_at ?? '9';
  for (const made of body.data.filter(({ name }: any) => name === 'beside')) {
    expect(made.created_at <= revoked).toBe(true);
  }
});

test('a repeated creation is answered without its secret to the replaced secret that sent the first request', async () => {
  const self = await makeKey();
  const request = { headers: { 'idempotency-key': uuidv7() }, body: { ...NEW_KEY, name: 'once' } };
  const made = await self.request('POST', '/v1/keys', request);
  await owner.post(`/v1/keys/${self.keyId}/rotate`, { overlap_secs: 60 });
  const again = await self.request('POST', '/v1/keys', request);
  expect([again.status, again.body]).toEqual([200, { ...made.body, key: null }]);
});
