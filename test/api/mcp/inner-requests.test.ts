import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { text } from 'node:stream/consumers';
import { expect, test } from 'vitest';
import { FULL_ACCESS } from '../../../src/access/access.js';
import { operator } from '../../../src/audit/events/actor.js';
import { Certificate } from '../../../src/http/tls/certificate.js';
import { createKey } from '../../../src/keys/create.js';
import { Authority, pairFiles } from '../../support/certificates.js';
import { startForTest } from '../../support/service.js';

/** The requests that tools send to the service, within its process. */

const SILENT = { info: () => undefined, warn: () => undefined, error: () => undefined };
const LIST = {
  jsonrpc: '2.0',
  id: 1,
  method: 'tools/call',
  params: { name: 'list_sandboxes', arguments: {} },
};

function post(url: string, key: string, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${url}/mcp`, {
    method: 'POST',
    headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
    body: JSON.stringify(LIST),
  });
}

test('need no TLS where clients do', async () => {
  const authority = new Authority();
  const certificate = new Certificate(pairFiles(authority.issue()), SILENT);
  const service = await startForTest({ worker: false, certificate });
  const { key } = await service.newOrg();
  const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json' };
  const options = { method: 'POST', ca: authority.root, agent: false as const, headers };
  const sent = httpsRequest(`${service.url}/mcp`, options).end(JSON.stringify(LIST));
  const [answer] = (await once(sent, 'response')) as [IncomingMessage];
  const { result } = JSON.parse(await text(answer)) as { result: { structuredContent: unknown } };
  expect(result.structuredContent).toEqual({ sandboxes: [], next_cursor: null });
});

test('have the address of the client that a trusted proxy names', async () => {
  const service = await startForTest({ worker: false, settings: { trustedProxies: ['127.0.0.1'] } });
  const { org } = await service.newOrg();
  const { key } = await createKey(service.ctx.pool, org.id, 'office', operator('test'), {
    ...FULL_ACCESS,
    cidrs: ['203.0.113.0/24'],
  });
  const from = async (address: string) => {
    const answer = await post(service.url, key, { 'x-forwarded-for': address });
    return [answer.status, await answer.text()];
  };
  expect(await from('203.0.113.7')).toEqual([200, expect.stringContaining('"sandboxes":[]')]);
  expect(await from('198.51.100.7')).toEqual([403, expect.stringContaining('address_not_allowed')]);
});

test('are in the log with the id of the message, and count against the rate of the key', async () => {
  const service = await startForTest({ worker: false, settings: { rateLimit: 1 } });
  const { key } = await service.newOrg();
  const answer = await post(service.url, key, { 'x-request-id': 'from-the-agent' });
  expect(answer.headers.get('ratelimit')).toMatch(/^"key";r=\d+;t=\d+$/);
  await answer.text();
  const lines = service.logs
    .map((line) => JSON.parse(line) as { route?: string; reqId?: string; msg: string })
    .filter(({ msg, reqId }) => msg === 'request answered' && reqId === 'from-the-agent');
  expect(lines.map(({ route }) => route).toSorted((a = '', b = '') => a.localeCompare(b))).toEqual([
    '/mcp',
    '/v1/sandboxes',
  ]);
  // Ten units in ten seconds: five messages with a request each.
  const statuses: number[] = [];
  let refused = '';
  while (refused === '' && statuses.length < 20) {
    const next = await post(service.url, key);
    statuses.push(next.status);
    const body = await next.text();
    if (body.includes('rate_limited')) refused = body;
  }
  expect(refused).toContain('too many requests of the key');
  expect(statuses.length).toBeLessThan(20);
});
