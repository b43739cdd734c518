import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Page, Request } from 'playwright-core';
import { expect } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { makeBudget } from '../support/budgets.js';
import type { Client } from '../support/client.js';
import { newMember } from '../support/members.js';
import { until } from '../support/polling.js';
import { smallRequest } from '../support/sandbox-requests.js';
import type { TestService } from '../support/service.js';
import { build } from '../support/templates.js';

export const SOURCE = join(PACKAGE_ROOT, 'console/src');
export const read = (path: string) => readFileSync(join(SOURCE, path), 'utf8');

/** The pages of the console's own list. */
export const PATHS = [...read('pages.ts').matchAll(/^ {2,4}(?:\{ )?path: '([^']+)'/gm)].map(
  ([, path]) => path!,
);
const TABS = [
  ...read('sandbox/sandbox.tsx')
    .split('const TABS = {')[1]!
    .split('}')[0]!
    .matchAll(/(\w+): '/g),
].map(([, tab]) => tab!);

/** Preact runs the effects of a picture, which may begin a request, in a task after the next frame. */
const TWO_FRAMES =
  'new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done))))';

/** Makes one of each thing. Returns the addresses of the pages, by their paths. */
export async function furnish(service: TestService, client: Client): Promise<Map<string, string>> {
  const made = async (
    method: string,
    path: string,
    body: unknown,
    query?: Record<string, string | boolean>,
  ) => {
    const answer = await client.request(method, path, { body, ...(query ? { query } : {}) });
    expect([method, path, answer.status < 300, answer.text]).toEqual([method, path, true, answer.text]);
    return answer.body;
  };
  const running = { start: true, wait_for: 'running' };
  const sandbox = await made('POST', '/v1/sandboxes', smallRequest('shown'), running);
  await made('POST', `/v1/sandboxes/${sandbox.id}/previews`, { port: 80 });
  await made('PUT', '/v1/pools/ready', { ...smallRequest('x'), name: undefined, size: 1 });
  await made('POST', '/v1/snapshots', { kind: 'disk', sandbox_id: sandbox.id, name: 'kept' });
  await made('POST', '/v1/snapshots', { kind: 'disk', sandbox_id: sandbox.id, name: 'gone' });
  const snapshots = await until(
    async () => (await client.get('/v1/snapshots')).body.data,
    (data) => data.length === 2 && data.every(({ status }: any) => status === 'ready'),
  );
  const idOf = (name: string) => snapshots.find((one: any) => one.name === name).id;
  await client.delete(`/v1/snapshots/${idOf('gone')}`);
  const template = await build(client, 'tools:1', 'FROM busybox\n');
  const volume = await made('POST', '/v1/volumes', { name: 'models' });
  const deleted = await made('POST', '/v1/volumes', { name: 'old-models' });
  await client.delete(`/v1/volumes/${deleted.id}`);
  const webhook = await made('POST', '/v1/webhooks', { url: 'https://example.com/hooks' });
  await makeBudget(client);
  await made('POST', '/v1/keys', { name: 'shown-key', scopes: ['sandboxes:read'] });
  await made('POST', '/v1/invitations', { email: 'grace@example.com', role: 'developer' });
  // An owner and an administrator may change it: the first owner alone is the last one.
  await newMember(service, client.org.id, 'viewer');
  const of: Record<string, string[]> = {
    '/sandboxes/:id/:tab?': TABS.map((tab) => `/sandboxes/${sandbox.id}/${tab}`),
    '/pools/:name': ['/pools/ready'],
    '/snapshots/:id': [`/snapshots/${idOf('kept')}`, `/snapshots/${idOf('gone')}`],
    '/templates/:id': [`/templates/${template['id']}`],
    '/volumes/:id': [`/volumes/${volume.id}`, `/volumes/${deleted.id}`],
    '/webhooks/:id': [`/webhooks/${webhook.id}`],
  };
  const addresses = new Map<string, string>();
  for (const path of PATHS) {
    const known = path.includes(':') ? of[path] : [path];
    if (!known) throw new Error(`the page ${path} has no address in this test`);
    for (const address of known) {
      const tab = path.includes(':tab') ? `/${address.split('/').at(-1)}` : '';
      addresses.set(address, path.replace('/:tab?', tab));
    }
  }
  return addresses;
}

/** Opens a page without another load of the console, and waits until it has all that it asked for. */
export async function openPage(page: Page, address: string, pending: ReadonlySet<Request>): Promise<void> {
  await page.evaluate(`history.pushState(null, '', '/console${address}')`);
  await settled(page, pending);
  await page.locator('main h1').waitFor();
  await settled(page, pending);
}

/**
 * Waits until the page has no request. Two frames follow an answer: the effects of its picture may begin another one.
 * The browser fails requests while Docker makes a network. The console repeats them.
 */
async function settled(page: Page, pending: ReadonlySet<Request>): Promise<void> {
  const unanswered = () => [...pending].map((request) => `${request.method()} ${request.url()}`);
  await until(
    async () => {
      const before = unanswered();
      await page.evaluate(TWO_FRAMES);
      const lost = await page.getByText('The service does not answer.').allTextContents();
      return [...before, ...unanswered(), ...lost];
    },
    (reasons) => reasons.length === 0,
  );
}

/** The requests of the page that have no answer yet. */
export function pendingRequests(page: Page): ReadonlySet<Request> {
  const pending = new Set<Request>();
  page.on('request', (request) => {
    // Streams never end.
    if (request.headers()['accept'] !== 'text/event-stream') pending.add(request);
  });
  for (const end of ['requestfinished', 'requestfailed'] as const)
    page.on(end as 'requestfinished', (request) => void pending.delete(request));
  return pending;
}
