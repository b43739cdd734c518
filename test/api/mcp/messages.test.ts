import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { operator } from '../../../src/audit/events/actor.js';
import { createKey } from '../../../src/keys/create.js';
import type { Client } from '../../support/client.js';
import { signIn } from '../../support/console.js';
import { connectHttp } from '../../support/mcp.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';

/** The second process has another engine. In the first one no start ends, so a create waits. */
const MOST = 6;
let service: TestService;
let beside: TestService;
let owner: Client;

beforeAll(async () => {
  service = await startTestService({
    simulated: { startMs: 3_600_000 },
    settings: { maxMcpCallsOfKey: MOST },
  });
  beside = await startTestService({ beside: service, worker: false });
  owner = await service.newOrg();
});
afterAll(async () => {
  await beside.close();
  await service.close();
});

const INITIALIZE = {
  jsonrpc: '2.0',
  id: 0,
  method: 'initialize',
  params: {
    protocolVersion: '2025-06-18',
    capabilities: {},
    clientInfo: { name: 'test', version: '1' },
  },
};
const PING = { jsonrpc: '2.0', id: 1, method: 'ping' };

interface Sent {
  key?: string;
  headers?: Record<string, string>;
  url?: string;
  signal?: AbortSignal;
}

function post(message: unknown, { key = owner.key, headers = {}, url = service.url, signal }: Sent = {}) {
  return fetch(`${url}/mcp`, {
    method: 'POST',
    headers: {
      ...(key === '' ? {} : { authorization: `Bearer ${key}` }),
      'content-type': 'application/json',
      accept: 'application/json, text/event-stream',
      ...headers,
    },
    body: JSON.stringify(message),
    ...(signal ? { signal } : {}),
  });
}

async function answerTo(message: unknown, sent: Sent = {}): Promise<[number, any]> {
  const answer = await post(message, sent);
  const text = await answer.text();
  return [answer.status, text === '' ? null : JSON.parse(text)];
}

async function newSession(sent: Sent = {}): Promise<string> {
  return (await post(INITIALIZE, sent)).headers.get('mcp-session-id')!;
}

const create = (id: number | string, name: string) => ({
  jsonrpc: '2.0',
  id,
  method: 'tools/call',
  params: { name: 'create_sandbox', arguments: { image: 'busybox', name } },
});

/** The create has reached the API. */
const untilMade = (name: string, client = owner) =>
  until(
    () => client.get(`/v1/sandboxes/by-name/${name}`),
    ({ status }) => status === 200,
  );

test('a session begins with an answer that names it', async () => {
  const answer = await post(INITIALIZE);
  expect(answer.status).toBe(200);
  expect(answer.headers.get('mcp-session-id')).toMatch(/^[\w-]{40,}$/);
  expect(await answer.json()).toMatchObject({
    id: 0,
    result: {
      protocolVersion: '2025-06-18',
      serverInfo: { name: 'sandkeep' },
      capabilities: { tools: {}, resources: {} },
    },
  });
});

describe('a session id', () => {
  test('works in each process, and after the key has a new secret', async () => {
    const made = await createKey(service.ctx.pool, owner.org.id, 'rotated', operator('test'));
    const headers = { 'mcp-session-id': await newSession({ key: made.key }) };
    for (const { url } of [service, beside])
      expect(await answerTo(PING, { key: made.key, headers, url })).toEqual([
        200,
        { jsonrpc: '2.0', id: 1, result: {} },
      ]);
    const { body } = await owner.post(`/v1/keys/${made.id}/rotate`, { overlap_secs: 0 });
    expect((await answerTo(PING, { key: body.key, headers }))[0]).toBe(200);
  });

  test('is not found for another key or organization, or if it is forged or damaged', async () => {
    const own = await newSession();
    const { key } = await createKey(service.ctx.pool, owner.org.id, 'beside', operator('test'));
    const foreign = await newSession({ key: (await service.newOrg()).key });
    for (const [id, by] of [
      [own, key],
      [foreign, owner.key],
      [`${own}A`, owner.key],
      [own.slice(0, -2), owner.key],
      [Buffer.alloc(60).toString('base64url'), owner.key],
      ['x'.repeat(4_096), owner.key],
    ] as const) {
      const [status, body] = await answerTo(PING, { key: by, headers: { 'mcp-session-id': id } });
      expect([status, body.error.code]).toEqual([404, 'mcp_session_not_found']);
    }
  });

  test('ends with its key', async () => {
    const made = await createKey(service.ctx.pool, owner.org.id, 'short', operator('test'));
    const headers = { 'mcp-session-id': await newSession({ key: made.key }) };
    await owner.delete(`/v1/keys/${made.id}`);
    expect((await answerTo(PING, { key: made.key, headers }))[0]).toBe(401);
  });
});

describe('a request is refused', () => {
  test.each([['http://evil.example'], ['http://localhost:6274'], ['null'], ['vscode-webview://x']])(
    'from a page of %s, also with a valid key',
    async (origin) => {
      const [status, body] = await answerTo(PING, { headers: { origin } });
      expect([status, body.error.code]).toEqual([403, 'origin_not_allowed']);
    },
  );

  test('from a page whose name is bound to the address of the service', async () => {
    const { host } = new URL(service.url);
    const [status] = await answerTo(PING, { headers: { origin: `http://${host}` } });
    expect(status).toBe(403);
  });

  test('by the cookie of the console, also with its token', async () => {
    const session = await signIn(service, owner.key);
    const answer = await session.fetch('/mcp', {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(PING),
    });
    expect(answer.status).toBe(401);
  });

  test.each([
    ['no key', PING, { key: '' }, 401],
    ['a batch', [PING, PING], {}, 400],
    ['no method', { jsonrpc: '2.0', id: 1 }, {}, 400],
    ['an answer', { jsonrpc: '2.0', id: 1, result: {} }, {}, 400],
    ['another version of JSON-RPC', { ...PING, jsonrpc: '1.0' }, {}, 400],
    ['an unknown version of the protocol', PING, { headers: { 'mcp-protocol-version': '1999-01-01' } }, 400],
    ['a long id', { ...PING, id: 'x'.repeat(300) }, {}, 400],
    ['metadata that is no object', { ...PING, params: { _meta: 1 } }, {}, 400],
    ['a body that is too long', { ...PING, params: { a: 'x'.repeat(1024 * 1024) } }, {}, 413],
  ] as const)('for %s', async (_, message, sent, status) => {
    expect((await answerTo(message, sent))[0]).toBe(status);
  });

  test('by methods of streams and of the end of sessions', async () => {
    for (const method of ['GET', 'DELETE']) {
      const headers = { authorization: `Bearer ${owner.key}`, accept: 'text/event-stream' };
      const answer = await fetch(`${service.url}/mcp`, { method, headers });
      expect([method, answer.status, answer.headers.get('allow')]).toEqual([method, 405, 'POST']);
    }
  });
});

test('an unknown method is an error of JSON-RPC', async () => {
  const [status, body] = await answerTo({ ...PING, method: 'prompts/list' });
  expect([status, body.error.code]).toEqual([200, -32_601]);
});

test('notifications are accepted without an answer', async () => {
  for (const method of ['notifications/initialized', 'notifications/cancelled', 'notifications/unknown'])
    expect(await answerTo({ jsonrpc: '2.0', method })).toEqual([202, null]);
});

test('a client that takes no stream gets the result of a tool as JSON', async () => {
  const message = {
    jsonrpc: '2.0',
    id: 'a',
    method: 'tools/call',
    params: { name: 'list_sandboxes', arguments: { name_prefix: 'nobody' }, _meta: { progressToken: 1 } },
  };
  const [status, body] = await answerTo(message, { headers: { accept: 'application/json' } });
  expect([status, body.id, body.result.structuredContent.sandboxes]).toEqual([200, 'a', []]);
});

describe('the revision 2026-07-28', () => {
  const REVISION = '2026-07-28';

  test('has the same tools and resources, without a session', async () => {
    const agent = await connectHttp(service.url, owner.key, REVISION);
    expect(agent.client.getNegotiatedProtocolVersion()).toBe(REVISION);
    const legacy = await connectHttp(service.url, owner.key);
    expect((await agent.client.listTools()).tools).toEqual((await legacy.client.listTools()).tools);
    expect((await agent.call('list_sandboxes', { name_prefix: 'nobody' })).value.sandboxes).toEqual([]);
    expect((await agent.call('get_sandbox', { sandbox: 'nobody' })).text).toContain('sandbox_not_found');
    await expect(agent.client.readResource({ uri: 'sandkeep://x' })).rejects.toThrow('there is no resource');
    expect([agent.sessionId(), legacy.sessionId()]).toEqual([undefined, expect.any(String)]);
    await agent.close();
    await legacy.close();
  });

  test('ends a call whose client cancels it, and one whose key is revoked', async () => {
    const made = await createKey(service.ctx.pool, owner.org.id, 'newer', operator('test'));
    const agent = await connectHttp(service.url, made.key, REVISION);
    const stop = new AbortController();
    const cancelled = agent.call(
      'create_sandbox',
      { image: 'busybox', name: 'newer-cancelled' },
      { signal: stop.signal },
    );
    await untilMade('newer-cancelled');
    stop.abort('the user');
    await expect(cancelled).rejects.toThrow('the user');
    const revoked = agent.call('create_sandbox', { image: 'busybox', name: 'newer-revoked' });
    await untilMade('newer-revoked');
    await owner.delete(`/v1/keys/${made.id}`);
    expect((await revoked).text).toContain('invalid_api_key');
    // All calls are over.
    await agent.close();
  });

  test('has no subscriptions: nothing changes between calls', async () => {
    const meta = {
      'io.modelcontextprotocol/protocolVersion': REVISION,
      'io.modelcontextprotocol/clientInfo': { name: 'test', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    };
    const message = { ...PING, method: 'subscriptions/listen', params: { _meta: meta, notifications: {} } };
    const headers = { 'mcp-protocol-version': REVISION, 'mcp-method': 'subscriptions/listen' };
    const [status, body] = await answerTo(message, { headers });
    expect([status, body.error.message]).toEqual([200, expect.stringMatching(/limit|not found/i)]);
  });
});

describe('a call in progress', () => {
  test.each([
    ['to its own process', 'here', () => service.url],
    ['to another process', 'there', () => beside.url],
  ])('ends by a cancellation %s, and by no other one', async (_, name, urlOf) => {
    const headers = { 'mcp-session-id': await newSession() };
    const [own, other] = [`cancelled-${name}`, `kept-${name}`];
    const ended = post(create(7, own), { headers }).then((answer) => answer.text());
    const leave = new AbortController();
    let isKept = true;
    const kept = post(create(8, other), { headers, signal: leave.signal })
      .then((answer) => answer.text())
      .catch(() => undefined)
      .finally(() => (isKept = false));
    await untilMade(own);
    await untilMade(other);
    const cancel = (requestId: unknown, session: string) =>
      answerTo(
        { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId } },
        { url: urlOf(), headers: { 'mcp-session-id': session } },
      );
    // Neither the id as text nor another session of the same key names the call.
    expect(await cancel('7', headers['mcp-session-id'])).toEqual([202, null]);
    expect(await cancel(7, await newSession())).toEqual([202, null]);
    expect(await cancel(7, headers['mcp-session-id'])).toEqual([202, null]);
    // The stream ends without a result.
    expect(await ended).not.toContain('"result"');
    expect(isKept).toBe(true);
    leave.abort();
    await kept;
  });

  test('ends with its key at once', async () => {
    const made = await createKey(service.ctx.pool, owner.org.id, 'revoked', operator('test'));
    const agent = await connectHttp(service.url, made.key);
    const ended = agent.call('create_sandbox', { image: 'busybox', name: 'revoked' });
    await untilMade('revoked');
    await owner.delete(`/v1/keys/${made.id}`);
    const { isError, text } = await ended;
    expect([isError, text]).toEqual([true, expect.stringContaining('invalid_api_key')]);
    await expect(agent.call('list_sandboxes')).rejects.toThrow('unauthorized');
    await agent.close();
  });

  test('is cancelled by the signal of the official client', async () => {
    const agent = await connectHttp(service.url, owner.key);
    const stop = new AbortController();
    const input = { image: 'busybox', name: 'by-signal' };
    const ended = agent.call('create_sandbox', input, { signal: stop.signal });
    await untilMade('by-signal');
    stop.abort('the user');
    await expect(ended).rejects.toThrow('the user');
    expect((await agent.call('get_sandbox', { sandbox: 'by-signal' })).isError).toBe(false);
    await agent.close();
  });
});

test('a flood of calls of one key is bounded, and no other caller notices', async () => {
  const flooder = await service.newOrg();
  const headers = { 'mcp-session-id': await newSession({ key: flooder.key }) };
  const leave = new AbortController();
  const statuses: number[] = [];
  const flood = Array.from({ length: MOST + 4 }, async (_, index) => {
    try {
      const sent = { key: flooder.key, headers, signal: leave.signal };
      const answer = await post(create(index, `flood-${index}`), sent);
      statuses.push(answer.status);
      await answer.text();
    } catch {
      // It was left.
    }
  });
  await until(
    () => Promise.resolve(statuses.length),
    (count) => count === flood.length,
  );
  const refused = statuses.filter((status) => status === 429).length;
  expect([refused, statuses.length - refused]).toEqual([4, MOST]);
  // Another organization, and another key of the same one.
  const { key } = await createKey(service.ctx.pool, flooder.org.id, 'second', operator('test'));
  for (const by of [owner.key, key]) expect((await answerTo(PING, { key: by }))[0]).toBe(200);
  leave.abort();
  await Promise.all(flood);
  // The slots are free again.
  await until(
    () => answerTo(PING, { key: flooder.key }),
    ([status]) => status === 200,
  );
});
