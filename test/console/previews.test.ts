import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { once } from 'node:events';
import { afterAll, beforeAll, beforeEach, expect, onTestFinished, test } from 'vitest';
import { operator } from '../../src/audit/events/actor.js';
import { changePreviewSettings } from '../../src/orgs/preview-settings.js';
import type { Answer } from '../support/answer.js';
import { until } from '../support/polling.js';
import { OPEN_HOSTS, serveGranted, type GrantedPreviews } from '../support/preview-service.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

/** The page of a server in a sandbox. It tells the address that its script saw, and sets a cookie of its own. */
const APP = `<!doctype html><title>App</title><h1>Hello</h1><p id="seen"></p><script>
document.getElementById('seen').textContent = JSON.stringify(
  { href: location.href, referrer: document.referrer, hasOpener: window.opener !== null });
</script>`;

describeBrowser('a browser at a preview', () => {
  const hosts = OPEN_HOSTS();
  const now = useConsole({ worker: false, previews: hosts });

  let previews: GrantedPreviews;
  /** The requests that reached servers in sandboxes. */
  let seen: { url: string; cookie: string; referrer: string }[] = [];
  beforeAll(async () => {
    previews = await serveGranted(now.service, hosts, (request, response) => {
      const { host = '', cookie = '', referer: referrer = '' } = request.headers;
      seen.push({ url: `http://${host}${request.url}`, cookie, referrer });
      response.setHeader('set-cookie', `app=${host.slice(0, 20)}`);
      response.setHeader('content-type', 'text/html');
      response.end(APP);
    });
  });
  afterAll(() => previews.close());
  beforeEach(() => void (seen = []));

  async function open(request: object): Promise<Answer['body']> {
    const { body } = await now.client.post('/v1/sandboxes', smallRequest(`app-${Math.random()}`));
    const { body: preview, text } = await now.client.post(`/v1/sandboxes/${body.id}/previews`, request);
    if (!preview.url) throw new Error(text);
    return preview;
  }

  const seenByApp = async () => JSON.parse(await now.visitor.page.locator('#seen').innerText());

  test('gets the page at its path, and no address, history or request keeps the token', async () => {
    const { url, origin, token } = await open({ port: 3000, path: '/docs?a=1#part' });
    const { page, context } = now.visitor;
    await page.goto('data:text/html,before');
    await page.goto(url);
    await page.getByRole('heading', { name: 'Hello' }).waitFor();
    expect(page.url()).toBe(`${origin}/docs?a=1#part`);
    expect(await seenByApp()).toEqual({ href: page.url(), referrer: '', hasOpener: false });
    const cookie = (await context.cookies(origin)).find(({ name }) => name.startsWith('__Host-'));
    expect(cookie).toMatchObject({ secure: true, httpOnly: true, sameSite: 'None', path: '/' });
    expect(cookie!.partitionKey).toBeDefined();
    await page.reload();
    expect(await seenByApp()).toMatchObject({ href: page.url() });
    await page.goBack();
    expect(page.url()).toBe('data:text/html,before');
    expect(JSON.stringify(seen)).not.toContain(token);
    expect(JSON.stringify(seen)).not.toContain('__Host-');
  });

  test('that has the cookie already keeps the token of another link from the server', async () => {
    const { url, origin, token } = await open({ port: 3000 });
    const { page, context } = now.visitor;
    await page.goto(url);
    await page.getByRole('heading', { name: 'Hello' }).waitFor();
    const opening = context.waitForEvent('page');
    // A page of the server may watch the way of its window, and that of windows that it opens.
    const watched = await page.evaluate(`new Promise((done) => {
      const opened = window.open(${JSON.stringify(url)});
      const seen = [];
      const timer = setInterval(() => { try { seen.push(opened.location.href); } catch { seen.push('closed'); } }, 1);
      setTimeout(() => { clearInterval(timer); done({ seen, isCut: opened.closed }); }, 1500);
    })`);
    expect(JSON.stringify(watched)).not.toContain(token);
    const other = await opening;
    await other.getByRole('heading', { name: 'Hello' }).waitFor();
    expect(other.url()).toBe(`${origin}/`);
    expect(await other.evaluate('window.opener === null')).toBe(true);
  });

  test('keeps the cookies of two sandboxes and two ports apart', async () => {
    const first = await open({ port: 3000 });
    const second = await open({ port: 3001 });
    const { page } = now.visitor;
    for (const { url } of [first, second, first]) {
      await page.goto(url);
      await page.getByRole('heading', { name: 'Hello' }).waitFor();
      await page.reload();
    }
    for (const { url, cookie } of seen.slice(1)) {
      const own = new URL(url).host.slice(0, 20);
      expect(cookie.match(/app=[^;]*/g) ?? [`app=${own}`]).toEqual([`app=${own}`]);
    }
    expect(seen.filter(({ cookie }) => cookie.includes('app=')).length).toBeGreaterThan(2);
  });

  test('loses its WebSocket within a second of the revocation, and then sees that it has ended', async () => {
    const { page } = now.visitor;
    /** From the revocation to the end, in milliseconds. */
    const endOfOne = async () => {
      const made = await open({ port: 3000 });
      await page.goto(made.url);
      await page.getByRole('heading', { name: 'Hello' }).waitFor();
      await page.evaluate(`new Promise((ready) => {
        const socket = new WebSocket(location.href.replace('http', 'ws'));
        window.ended = new Promise((end) => socket.addEventListener('close', () => end(Date.now())));
        socket.addEventListener('message', ready);
      })`);
      const began = Date.now();
      await now.client.delete(`/v1/sandboxes/${made.sandbox_id}/previews/${made.id}`);
      return { preview: made, millis: Number(await page.evaluate('window.ended')) - began };
    };
    // A busy machine may take longer for one.
    const { preview } = await until(endOfOne, ({ millis }) => millis < 1_000);
    await page.reload();
    await page.getByRole('heading', { name: 'The preview has ended' }).waitFor();
    await page.goto(preview.url);
    await page.getByRole('heading', { name: 'The preview has ended' }).waitFor();
    expect(page.url()).not.toContain(preview.token);
    await page.goto(preview.url.replace(/#.*/, ''));
    await page.getByText('The link is not complete').waitFor();
  });

  test('opens a link in a frame of another site, apart from the tab', async () => {
    const { url, origin } = await open({ port: 3000 });
    const outer = createServer((_request, response) => {
      response.setHeader('content-type', 'text/html');
      response.end(`<iframe src="${url.replaceAll('&', '&amp;')}"></iframe>`);
    });
    await once(outer.listen(0, '127.0.0.1'), 'listening');
    onTestFinished(() => void outer.close());
    const { page } = now.visitor;
    await page.goto(`http://127.0.0.1:${(outer.address() as AddressInfo).port}/`);
    await page.frameLocator('iframe').getByRole('heading', { name: 'Hello' }).waitFor();
    await page.goto(`${origin}/`);
    expect(await page.locator('h1').innerText()).toBe('This preview needs a link');
  });

  test('sees whose page it opens, once, where the organization asks for it', async () => {
    const preview = await open({ port: 3000 });
    await changePreviewSettings(now.service.ctx.pool, now.client.org.id, { notice: true }, operator('test'));
    const { page } = now.visitor;
    await until(
      async () => {
        await page.goto(preview.url);
        await page.waitForURL(`${preview.origin}/`);
        return page.locator('h1').innerText();
      },
      (title) => title === 'You open a page of a sandbox',
    );
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('heading', { name: 'Hello' }).waitFor();
    await page.reload();
    expect(await page.locator('h1').innerText()).toBe('Hello');
  });

  test('opens a port from the console in a tab without a hold on it, and revokes it there', async () => {
    const { body: sandbox } = await now.client.post('/v1/sandboxes', smallRequest('opened'));
    const { page, context } = now.visitor;
    await signInBrowser(page, now.client.key, `/console/sandboxes/${sandbox.id}/previews`);
    await page.getByText('No open preview').waitFor();
    await page.getByRole('button', { name: 'Open port' }).click();
    await page.getByRole('spinbutton', { name: 'Port' }).fill('3000');
    await page.getByLabel('Lifetime').selectOption('a day');
    await expectPresentable(page, 'open-port');
    const opening = context.waitForEvent('page');
    await page.getByRole('button', { name: 'Open', exact: true }).click();
    const tab = await opening;
    await tab.getByRole('heading', { name: 'Hello' }).waitFor();
    expect(await tab.evaluate('window.opener === null')).toBe(true);
    await page.getByRole('button', { name: 'Done' }).click();
    expect(await page.content()).not.toContain('skp_');
    await expectPresentable(page, 'previews');
    await page.getByRole('button', { name: 'Revoke port 3000' }).click();
    await page.getByRole('button', { name: 'Revoke', exact: true }).click();
    await page.getByText('No open preview').waitFor();
    await tab.reload();
    expect(await tab.locator('h1').innerText()).toBe('The preview has ended');
  });
});
