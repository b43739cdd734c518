import type { Browser } from 'playwright-core';
import { readFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { describeDocker, IMAGE, makeImage } from '../support/docker.js';
import { destroyAll, onDocker } from '../support/docker-service.js';
import { until } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';
import { startWire } from '../support/wire.js';
import {
  describeBrowser,
  expectPresentable,
  launch,
  newVisitor,
  signInBrowser,
  tabTo,
  type Visitor,
} from './browser.js';

const SPOKEN = '<img src=x onerror=alert(1)> hello';
/** Markup, sequences of a terminal, a reversed direction of text, and a word that is wider than every screen. */
const HOSTILE =
  '"><script>alert(1)</script>\u001b]0;owned\u0007\u001b[31m\u202egnp.exe\u2066' + 'w'.repeat(900);

describeDocker('a browser on Docker', () => {
  describeBrowser('the page of a sandbox', () => {
    let service: TestService;
    let browser: Browser;
    let client: Client;
    let visitor: Visitor;
    let id: string;

    beforeAll(async () => {
      makeImage();
      service = await startTestService(onDocker());
      client = await service.newOrg();
      browser = await launch();
      const { status, body } = await client.post(
        '/v1/sandboxes',
        {
          name: 'web',
          image: { type: 'oci', reference: IMAGE },
          pull_policy: 'never',
          labels: { team: 'ml' },
          resources: { vcpus: 1, memory_mib: 128 },
          runtime: { cmd: ['sh', '-c', `echo '${SPOKEN}'; echo fault >&2; exec sleep 3600`] },
        },
        { start: true, wait_for: 'running', wait_timeout: 120 },
      );
      expect([status, body.status]).toEqual([200, 'running']);
      id = (body as { id: string }).id;
    });
    afterAll(async () => {
      await browser.close();
      await destroyAll(service, client);
      await service.close();
    });
    beforeEach(async () => {
      visitor = await newVisitor(browser, service.url);
    });
    afterEach(async () => {
      expect(visitor.faults).toEqual([]);
      await visitor.context.close();
    });

    test('the overview tells its history in words', async () => {
      const { page } = visitor;
      await signInBrowser(page, client.key, `/console/sandboxes/${id}`);
      const timeline = page.getByRole('region', { name: 'Timeline' });
      await timeline.getByText(/^Started/).waitFor();
      await page.getByRole('status').getByText('running').waitFor();
      const use = page.getByRole('region', { name: 'Use' });
      await use.getByText(/iB of 128 MiB/).waitFor();
      await use.getByRole('img', { name: 'CPU in the last hour' }).locator('canvas').waitFor();
      // The network of this engine is off.
      await use.getByText('Received').waitFor();
      await expectPresentable(page, 'sandbox');
    });

    test('the log is followed, searched and paused, and markup in it is text', async () => {
      const { page } = visitor;
      await signInBrowser(page, client.key, `/console/sandboxes/${id}/logs`);
      const log = page.getByRole('log', { name: 'Log' });
      await log.getByText(SPOKEN).waitFor();
      await page.getByLabel('Search').fill('fault');
      await log.getByText(SPOKEN).waitFor({ state: 'detached' });
      await page.getByLabel('Search').fill('');
      await page.getByRole('button', { name: 'Pause' }).click();
      await page.getByText('paused').waitFor();
      await expectPresentable(page, 'sandbox-logs');
    });

    test('hostile texts in its fields, its log and the list stay text, and widen no page', async () => {
      const { page } = visitor;
      page.on('dialog', (dialog) => {
        visitor.faults.push('a script ran');
        void dialog.dismiss();
      });
      const hostile = {
        name: 'h'.repeat(128),
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        labels: { ['<b>key</b>\u202e']: HOSTILE, ['k'.repeat(256)]: 'v' },
        env: [{ key: 'HOSTILE', value: HOSTILE }],
        resources: { vcpus: 0, memory_mib: 16 },
        runtime: { cmd: ['sh', '-c', 'echo "$HOSTILE"; echo "$1"; exec sleep 3600', 'sh', HOSTILE] },
      };
      const { status, body } = await client.post('/v1/sandboxes', hostile, {
        start: true,
        wait_for: 'running',
        wait_timeout: 120,
      });
      expect([status, body.status]).toEqual([200, 'running']);
      const markup = page.locator('main').locator('script, b:text-is("key")');
      await signInBrowser(page, client.key, `/console/sandboxes/${body.id}`);
      await page.getByText('gnp.exe').first().waitFor();
      expect(await markup.count()).toBe(0);
      await expectPresentable(page, 'sandbox-hostile');
      expect(await page.title()).not.toContain('owned');
      await page.goto(`/console/sandboxes/${body.id}/logs`);
      await page.getByRole('log', { name: 'Log' }).getByText('gnp.exe').first().waitFor();
      expect(await markup.count()).toBe(0);
      await expectPresentable(page, 'sandbox-hostile-log');
      await page.goto('/console/sandboxes');
      await page.getByText('gnp.exe').first().waitFor();
      expect(await markup.count()).toBe(0);
      await expectPresentable(page, 'sandboxes-hostile');
    });

    test('a terminal runs commands, and says how it ended', async () => {
      const { page } = visitor;
      await signInBrowser(page, client.key, `/console/sandboxes/${id}/terminal`);
      await page.getByRole('button', { name: 'Open a terminal' }).click();
      await page.getByText('● connected').waitFor();
      await page.keyboard.type('echo -e "\\033[38;2;255;0;0m$((40 + 2))-times\\033[0m"\n');
      await page.locator('.xterm-rows').getByText('42-times').first().waitFor();
      await expectPresentable(page, 'sandbox-terminal');
      await page.locator('.xterm-helper-textarea').focus();
      await page.keyboard.type('exit 3\n');
      await page.getByText('The program ended with exit code 3.').waitFor();
      await page.getByRole('button', { name: 'Open a new terminal' }).click();
      await page.getByText('● connected').waitFor();
    });

    test('the terminal follows the window, the keyboard can leave it, and hostile output stays inside', async () => {
      const { page, context } = visitor;
      await signInBrowser(page, client.key, `/console/sandboxes/${id}/terminal`);
      await page.getByLabel('Program').focus();
      await page.keyboard.press('Enter');
      await page.getByText('● connected').waitFor();
      const shown = page.locator('.xterm-rows');
      const sizeOf = async (mark: string) => {
        await page.keyboard.type(`echo ${mark}=$(busybox ttysize 2>/dev/null || busybox stty size)\n`);
        const line = shown.getByText(new RegExp(`^${mark}=\\d+ \\d+`));
        await line.first().waitFor();
        return (await line.first().textContent())!.split('=')[1];
      };
      const wide = await sizeOf('wide');
      await page.setViewportSize({ width: 640, height: 900 });
      // The guest learns the new size a moment later.
      let asked = 0;
      await until(
        () => sizeOf(`narrow${(asked += 1)}`),
        (size) => size !== wide,
      );
      await page.evaluate("navigator.clipboard.writeText('own')");
      const hostile = [
        String.raw`\033]0;owned\007`,
        String.raw`\033]52;c;b3duZWQ=\007`,
        String.raw`\033]8;;javascript:document.title="owned"\007link\033]8;;\007`,
        '<img src=x onerror=alert(1)>',
      ].join('');
      await page.keyboard.type(`printf '${hostile}'; echo ' en''d'\n`);
      await shown.getByText('> end').waitFor();
      const { x, y } = (await shown.getByText('link').last().boundingBox())!;
      await page.mouse.move(x + 8, y + 8);
      await page.mouse.click(x + 8, y + 8);
      expect(await page.title()).toBe('web · Sandkeep');
      expect(await page.evaluate('navigator.clipboard.readText()')).toBe('own');
      expect(context.pages().length).toBe(1);
      expect(await shown.locator('img').count()).toBe(0);
      await page.mouse.dblclick(x + 8, y + 8);
      await page.keyboard.press('Control+Shift+C');
      await page.getByText('Copied the selection.').waitFor();
      expect(await page.evaluate('navigator.clipboard.readText()')).toMatch(/^link/);
      await page.locator('.xterm-helper-textarea').focus();
      await page.keyboard.press('Shift+Escape');
      await page.getByRole('tab', { name: '1 /bin/sh' }).and(page.locator(':focus')).waitFor();
    });

    test('terminals are tabs, which run on while another is seen, by keyboard too', async () => {
      const { page } = visitor;
      await signInBrowser(page, client.key, `/console/sandboxes/${id}/terminal`);
      await page.getByRole('button', { name: 'Open a terminal' }).click();
      await page.getByText('● connected').waitFor();
      await page.keyboard.type('cd /tmp; echo in-$((1 + 1))-one\n');
      const seen = page.locator('[role=tabpanel]:not([hidden]) .xterm-rows');
      await seen.getByText('in-2-one').first().waitFor();
      await page.getByRole('button', { name: 'Open a new terminal' }).click();
      await page.getByRole('tab', { name: '2 /bin/sh', selected: true }).waitFor();
      await page.locator('[role=tabpanel]:not([hidden])').getByText('● connected').waitFor();
      await page.keyboard.type('echo in-$((1 + 1))-two\n');
      await seen.getByText('in-2-two').first().waitFor();
      await expectPresentable(page, 'sandbox-terminals');
      await page.locator('[role=tabpanel]:not([hidden]) .xterm-helper-textarea').focus();
      await page.keyboard.press('Shift+Escape');
      await page.keyboard.press('ArrowLeft');
      const first = page.getByRole('tab', { name: '1 /bin/sh', selected: true });
      await first.and(page.locator(':focus')).waitFor();
      // Another part of the page does not end them.
      await page.getByRole('link', { name: 'Files' }).click();
      await page.getByRole('button', { name: 'tmp/' }).waitFor();
      await page.getByRole('link', { name: 'Terminal' }).click();
      await first.click();
      await page.locator('[role=tabpanel]:not([hidden]) .xterm-helper-textarea').focus();
      await page.keyboard.type('echo still-$(pwd)\n');
      await seen.getByText('still-/tmp').first().waitFor();
      await page.keyboard.press('Shift+Escape');
      await page.keyboard.press('Delete');
      await first.waitFor({ state: 'detached' });
      await page.getByRole('tab', { name: '2 /bin/sh', selected: true }).waitFor();
      await page.getByRole('button', { name: 'Close' }).click();
      await page.getByRole('tablist').waitFor({ state: 'detached' });
    });

    test('a terminal whose connection is lost says so, and another can be opened', async () => {
      const { page } = visitor;
      const wire = await startWire(service.url);
      await page.goto(`${wire.url}/console/sandboxes/${id}/terminal`);
      await page.getByLabel('API key').fill(client.key);
      await page.keyboard.press('Enter');
      await page.getByRole('button', { name: 'Open a terminal' }).click();
      await page.getByText('● connected').waitFor();
      await page.keyboard.type("echo kept > /tmp/kept; echo do''ne\n");
      await page.locator('.xterm-rows').getByText(/^done/).waitFor();
      const endings = async () => {
        const { body } = await client.get('/v1/events', { event_type: 'sandbox_session_ended', limit: 100 });
        return (body as { data: unknown[] }).data.length;
      };
      const before = await endings();
      wire.cut();
      await page.getByText('The connection was lost. The service has ended the program').waitFor();
      expect(await until(endings, (count) => count > before)).toBeGreaterThan(before);
      await page.getByRole('button', { name: 'Open a new terminal' }).click();
      await page.getByText('● connected').waitFor();
      await page.keyboard.type('cat /tmp/kept\n');
      await page.locator('.xterm-rows').getByText(/^kept/).waitFor();
      await wire.close();
    });

    test('files are uploaded, downloaded and deleted', async () => {
      const { page } = visitor;
      await signInBrowser(page, client.key, `/console/sandboxes/${id}/files?folder=%2Ftmp`);
      const name = '<b>notes.txt';
      await page
        .getByLabel('Upload')
        .setInputFiles({ name, mimeType: 'text/plain', buffer: Buffer.from('kept') });
      await page.getByRole('button', { name: `Download ${name}` }).waitFor();
      await expectPresentable(page, 'sandbox-files');
      const downloading = page.waitForEvent('download');
      await page.getByRole('button', { name: `Download ${name}` }).click();
      expect(readFileSync(await (await downloading).path(), 'utf8')).toBe('kept');
      await page.getByRole('button', { name: `Delete ${name}` }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
      await page.getByRole('button', { name: `Download ${name}` }).waitFor({ state: 'detached' });
    });

    test('a small text is made and edited here, and a version of somebody else is not lost', async () => {
      const { page } = visitor;
      await signInBrowser(page, client.key, `/console/sandboxes/${id}/files?folder=%2Ftmp`);
      await tabTo(page, page.getByRole('button', { name: 'New', exact: true }));
      await page.keyboard.press('Enter');
      await page.getByLabel('Name in /tmp').fill('notes.txt');
      await page.keyboard.press('Enter');
      const editor = page.getByRole('dialog', { name: 'notes.txt' });
      const field = editor.getByLabel('Text of notes.txt');
      await field.and(page.locator(':focus')).waitFor();
      await page.keyboard.type('first line\nsecond');
      await expectPresentable(page, 'sandbox-editor');
      await page.keyboard.press('Control+s');
      await editor.waitFor({ state: 'detached' });
      const content = async (body?: string) => {
        const path = `/v1/sandboxes/${id}/files/content`;
        return client.request(body === undefined ? 'GET' : 'PUT', path, {
          query: { path: '/tmp/notes.txt' },
          ...(body !== undefined && { body, headers: { 'content-type': 'application/octet-stream' } }),
        });
      };
      expect((await content()).text).toBe('first line\nsecond');
      await page.getByRole('button', { name: 'notes.txt', exact: true }).click();
      await field.fill('mine');
      // Escape loses no text by itself.
      await page.keyboard.press('Escape');
      const discarding = page.getByRole('dialog', { name: 'Discard your changes?' });
      await discarding.getByRole('button', { name: 'Cancel' }).click();
      await discarding.waitFor({ state: 'detached' });
      expect(await field.inputValue()).toBe('mine');
      await content('theirs');
      await editor.getByRole('button', { name: 'Save' }).click();
      const question = page.getByRole('dialog', { name: 'The file has changed meanwhile' });
      await question.getByRole('button', { name: 'Cancel' }).click();
      expect((await content()).text).toBe('theirs');
      await editor.getByRole('button', { name: 'Save' }).click();
      await question.getByRole('button', { name: 'Replace it' }).click();
      await editor.waitFor({ state: 'detached' });
      expect((await content()).text).toBe('mine');
      await page.getByRole('button', { name: 'notes.txt', exact: true }).click();
      await field.fill('after a removal');
      await client.request('DELETE', `/v1/sandboxes/${id}/files`, { query: { path: '/tmp/notes.txt' } });
      await editor.getByRole('button', { name: 'Save' }).click();
      await question.getByRole('button', { name: 'Replace it' }).click();
      await editor.waitFor({ state: 'detached' });
      expect((await content()).text).toBe('after a removal');
      await content('no text: \0');
      await page.getByRole('button', { name: 'notes.txt', exact: true }).click();
      await editor.getByText('This is not a text in UTF-8').waitFor();
      await page.keyboard.press('Escape');
      await editor.waitFor({ state: 'detached' });
      await page.getByRole('button', { name: 'Delete notes.txt' }).click();
      await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
      await page.getByRole('button', { name: 'notes.txt', exact: true }).waitFor({ state: 'detached' });
    });

    test('the keyboard alone reaches its parts, uploads a file, and deletes the sandbox', async () => {
      const { page } = visitor;
      const { body } = await client.post('/v1/sandboxes', {
        name: 'typed',
        image: { type: 'oci', reference: IMAGE },
        pull_policy: 'never',
        runtime: { cmd: ['sleep', '3600'] },
      });
      await signInBrowser(page, client.key, `/console/sandboxes/${body.id}`);
      await tabTo(page, page.getByRole('button', { name: 'Start', exact: true }));
      await page.keyboard.press('Enter');
      await page.getByRole('status').getByText('running').waitFor();
      await tabTo(page, page.getByRole('link', { name: 'Files' }));
      await page.keyboard.press('Enter');
      const tmp = page.getByRole('button', { name: 'tmp/' });
      await tmp.waitFor();
      await tabTo(page, tmp);
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'This folder is empty' }).waitFor();
      const choosing = page.waitForEvent('filechooser');
      await tabTo(page, page.getByLabel('Upload'));
      await page.keyboard.press('Enter');
      await (
        await choosing
      ).setFiles({ name: 'a.txt', mimeType: 'text/plain', buffer: Buffer.from('typed') });
      const remove = page.getByRole('button', { name: 'Delete a.txt' });
      await remove.waitFor();
      await tabTo(page, remove);
      await page.keyboard.press('Enter');
      const dialog = page.getByRole('dialog');
      await tabTo(page, dialog.getByRole('button', { name: 'Delete' }));
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { name: 'This folder is empty' }).waitFor();
      await tabTo(page, page.getByRole('button', { name: 'Delete', exact: true }));
      await page.keyboard.press('Enter');
      await page.keyboard.press('Escape');
      await dialog.waitFor({ state: 'detached' });
      await page.getByRole('button', { name: 'Delete', exact: true }).and(page.locator(':focus')).waitFor();
      await page.keyboard.press('Enter');
      await tabTo(page, dialog.getByRole('button', { name: 'Delete' }));
      await page.keyboard.press('Enter');
      await page.getByRole('heading', { level: 1, name: 'Sandboxes' }).waitFor();
      expect((await client.get(`/v1/sandboxes/${body.id}`)).status).toBe(404);
    });

    const SHOWN: Record<string, string> = {
      runs: 'The present run began',
      sessions: 'No open session',
      events: 'Actor',
      usage: 'vCPU seconds',
    };
    test.each(['runs', 'sessions', 'events', 'usage'])('its %s are shown', async (tab) => {
      const { page } = visitor;
      await signInBrowser(page, client.key, `/console/sandboxes/${id}`);
      const tabs = page.getByRole('navigation', { name: 'Parts of the sandbox' });
      await tabs.getByRole('link', { name: tab, exact: false }).click();
      await page.getByText(SHOWN[tab]!).first().waitFor();
      await expectPresentable(page, `sandbox-${tab}`);
    });
  });
});
