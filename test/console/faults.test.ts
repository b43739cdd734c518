import type { Browser, Route } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { FULL_ACCESS } from '../../src/access/access.js';
import { operator } from '../../src/audit/events/actor.js';
import { createKey } from '../../src/keys/create.js';
import { revokeKey } from '../../src/keys/revoke.js';
import type { Client } from '../support/client.js';
import { startTestService, type TestService } from '../support/service.js';
import { describeBrowser, expectPresentable, launch, newVisitor, signInBrowser } from './browser.js';

describeBrowser('the console when something fails', () => {
  let service: TestService;
  let browser: Browser;
  let client: Client;

  beforeAll(async () => {
    service = await startTestService();
    client = await service.newOrg();
    await client.post('/v1/sandboxes', { name: 'web', image: { type: 'oci', reference: 'python:3.12' } });
    browser = await launch();
  });
  afterAll(async () => {
    await browser.close();
    await service.close();
  });

  test('401: a revoked key ends at the sign-in, which returns to the same address', async () => {
    const { pool } = service.ctx;
    const { id, key } = await createKey(pool, client.org.id, 'short', operator('test'), FULL_ACCESS);
    const { page, context } = await newVisitor(browser, service.url);
    await signInBrowser(page, key, '/console/sandboxes?sort=name');
    await page.getByRole('link', { name: 'web', exact: true }).waitFor();
    await revokeKey(pool, id, operator('test'));
    // The stream of events ends with the key, without a request of the person.
    await page.getByLabel('API key').fill(client.key);
    await page.keyboard.press('Enter');
    await page.getByRole('link', { name: 'web', exact: true }).waitFor();
    expect(page.url()).toBe(`${service.url}/console/sandboxes?sort=name`);
    await context.close();
  });

  test('403: a key without the scope is told so', async () => {
    const access = { ...FULL_ACCESS, scopes: ['volumes:read'] as const };
    const { key } = await createKey(service.ctx.pool, client.org.id, 'narrow', operator('test'), access);
    const { page, context } = await newVisitor(browser, service.url);
    // Every session opens this page, and its quotas need a scope.
    await signInBrowser(page, key, '/console/organization');
    const alert = page.getByRole('alert');
    await alert.waitFor();
    expect(await alert.textContent()).toMatch(/scope.*403 .*request/s);
    await expectPresentable(page, 'forbidden');
    await context.close();
  });

  test.each([
    [429, 'rate_limited', /Wait 7 s, then try again/],
    [500, 'internal', /give the operator the request id/],
  ])('%i: the page says what to do, and a new attempt recovers', async (status, code, advice) => {
    const { page, context } = await newVisitor(browser, service.url);
    const refuse = (route: Route) =>
      route.fulfill({
        status,
        headers: { 'x-request-id': 'the-request', 'retry-after': '7' },
        json: { error: { code, message: 'refused by the test' } },
      });
    await page.route('**/v1/sandboxes?*', refuse);
    // Without an answer to this request the page does not ask again by itself.
    await page.route('**/v1/events/stream', () => undefined);
    await signInBrowser(page, client.key);
    const alert = page.getByRole('alert');
    await alert.waitFor();
    const text = await alert.textContent();
    expect(text).toMatch(/Refused by the test\./);
    expect(text).toMatch(advice);
    expect(text).toContain('the-request');
    await page.unroute('**/v1/sandboxes?*', refuse);
    await page.getByRole('button', { name: 'Try again' }).click();
    await page.getByRole('link', { name: 'web', exact: true }).waitFor();
    await context.close();
  });

  test('a read that fails once is repeated, without a message', async () => {
    const { page, context } = await newVisitor(browser, service.url);
    await signInBrowser(page, client.key, '/console/volumes');
    const probes: string[] = [];
    page.on('request', (request) => void (request.url().endsWith('/readyz') && probes.push(request.url())));
    // The network of the machine changes when another test makes one with Docker.
    let hasNetworkChanged = false;
    page.on('requestfailed', (request) => {
      if (request.failure()?.errorText === 'net::ERR_NETWORK_CHANGED') hasNetworkChanged = true;
    });
    // A browser does this to all requests when the network of its machine changes.
    await page.route('**/v1/sandboxes?*', (route) => route.abort('internetdisconnected'), { times: 1 });
    await page.getByRole('link', { name: 'Sandboxes', exact: true }).click();
    await page.getByRole('link', { name: 'web', exact: true }).waitFor();
    expect(hasNetworkChanged ? [] : probes).toEqual([]);
    await context.close();
  });

  test('a lost connection says so, keeps what was shown, and recovers by itself', async () => {
    const { page, context } = await newVisitor(browser, service.url);
    await signInBrowser(page, client.key);
    await page.getByRole('link', { name: 'web', exact: true }).waitFor();
    await context.setOffline(true);
    await page.getByRole('columnheader', { name: 'Name' }).getByRole('button').click();
    const banner = page.getByText('The service does not answer. The page shows');
    await banner.waitFor();
    await expectPresentable(page, 'lost');
    const probe = page.waitForEvent('requestfinished', (request) => request.url().endsWith('/readyz'));
    await context.setOffline(false);
    await banner.waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'web', exact: true }).waitFor();
    // A request whose answer is not read never ends for the browser.
    await probe;
    await context.close();
  });
});
