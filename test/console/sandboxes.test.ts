import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { now } from '../../src/lib/instant.js';
import type { SimulatedRuntime } from '../../src/engines/simulated/runtime.js';
import type { Client } from '../support/client.js';
import { startTestService, type TestService } from '../support/service.js';
import {
  describeBrowser,
  expectPresentable,
  launch,
  newVisitor,
  signInBrowser,
  takePicture,
  type Visitor,
} from './browser.js';

const IMAGE = { type: 'oci', reference: 'python:3.12' };

describeBrowser('the page Sandboxes', () => {
  let service: TestService;
  let browser: Browser;
  let client: Client;
  let visitor: Visitor;

  beforeAll(async () => {
    service = await startTestService();
    browser = await launch();
  });
  afterAll(async () => {
    await browser.close();
    await service.close();
  });
  beforeEach(async () => {
    client = await service.newOrg();
    visitor = await newVisitor(browser, service.url);
  });
  afterEach(async () => {
    expect(visitor.faults).toEqual([]);
    await visitor.context.close();
  });

  async function create(name: string, labels: Record<string, string> = {}, start = false): Promise<string> {
    const { body } = await client.post('/v1/sandboxes', { name, image: IMAGE, labels }, { start });
    return (body as { id: string }).id;
  }

  test('a sign-in returns to the address that asked for it, also an earlier one, and the page keeps no key', async () => {
    const { page } = visitor;
    await signInBrowser(page, client.key, '/console/?status=failed');
    // The list was at the root of the console.
    expect(page.url()).toBe(`${service.url}/console/sandboxes?status=failed`);
    const stored = await page.evaluate(
      'JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie])',
    );
    expect(stored).not.toContain(client.key);
  });

  test('a refused key is refused in words, with the request id', async () => {
    const { page } = visitor;
    await page.goto('/console/');
    await expectPresentable(page, 'sign-in');
    await page.getByLabel('API key').fill('skp_wrong');
    await page.keyboard.press('Enter');
    const alert = page.getByRole('alert');
    await alert.waitFor();
    expect(await alert.textContent()).toMatch(/401.*request [\w-]+/);
  });

  test('a list without sandboxes says how to create the first', async () => {
    const { page } = visitor;
    await signInBrowser(page, client.key);
    await page.getByRole('heading', { name: 'No sandbox yet' }).waitFor();
    await expectPresentable(page, 'sandboxes-empty');
  });

  test('filters and order are in the address and take effect', async () => {
    const { page } = visitor;
    await create('web-1', { team: 'ml' });
    await create('web-2', { team: 'web' });
    await create('batch');
    await signInBrowser(page, client.key);
    await page.getByRole('link', { name: 'batch' }).waitFor();
    await page.getByLabel('Name contains').fill('EB-');
    await page.getByRole('link', { name: 'batch' }).waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByLabel('Labels').fill('team=ml');
    await page.getByRole('link', { name: 'web-2' }).waitFor({ state: 'detached' });
    await page.keyboard.press('Escape');
    await page.getByRole('columnheader', { name: 'Name' }).getByRole('button').click();
    await page.waitForURL((url) => url.searchParams.has('sort'));
    const { searchParams } = new URL(page.url());
    expect(Object.fromEntries(searchParams)).toEqual({
      name_contains: 'EB-',
      labels: '{"team":"ml"}',
      sort: 'name',
    });
    await page.reload();
    await page.getByRole('link', { name: 'web-1' }).waitFor();
    expect(await page.getByRole('row').count()).toBe(2);
  });

  test('a change elsewhere is shown without a reload', async () => {
    const { page } = visitor;
    const id = await create('web');
    await signInBrowser(page, client.key);
    const row = page.getByRole('row', { name: 'web' });
    await row.getByText('created', { exact: true }).waitFor();
    await client.post(`/v1/sandboxes/${id}/start`);
    await row.getByText('running').waitFor();
    await create('second');
    await page.getByRole('link', { name: 'second' }).waitFor();
    expect(await page.getByRole('row').count()).toBe(3);
  });

  test('many are changed at once, with the result of each', async () => {
    const { page } = visitor;
    await create('one');
    await create('two', {}, true);
    await signInBrowser(page, client.key);
    await page.getByRole('row', { name: 'two' }).getByText('running').waitFor();
    await page.getByLabel('Select all of this page').check();
    await page
      .getByRole('group', { name: 'Selected sandboxes' })
      .getByRole('button', { name: 'Start', exact: true })
      .click();
    const results = page.getByRole('region', { name: 'Results' });
    await results.getByText('one starts').waitFor();
    expect(await results.getByRole('listitem').filter({ hasText: 'two' }).textContent()).toMatch(/request/i);
    await expectPresentable(page, 'sandboxes-results');
    await page.getByRole('row', { name: 'one' }).getByText('running').waitFor();
    await results.getByRole('button', { name: 'Undo: stop them' }).click();
    await page.getByRole('row', { name: 'one' }).getByText('stopped').waitFor();
    await page.getByRole('row', { name: 'two' }).getByText('running').waitFor();
    await page.getByLabel('Select all of this page').check();
    await page
      .getByRole('group', { name: 'Selected sandboxes' })
      .getByRole('button', { name: 'Delete' })
      .click();
    const dialog = page.getByRole('dialog', { name: 'Delete 2 sandboxes?' });
    expect(await dialog.getByRole('listitem').allTextContents()).toEqual(['two', 'one']);
    await expectPresentable(page, 'sandboxes-confirm');
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('heading', { name: 'No sandbox yet' }).waitFor();
  });

  test('the keyboard alone creates a sandbox and opens it by the command palette', async () => {
    const { page } = visitor;
    await create('other');
    await signInBrowser(page, client.key);
    await page.getByRole('link', { name: 'other' }).waitFor();
    await page.keyboard.press('Control+k');
    await page.getByRole('option', { name: 'Create a sandbox' }).waitFor();
    await expectPresentable(page, 'palette');
    await page.keyboard.type('create');
    await page.keyboard.press('Enter');
    await page.getByLabel('name (required)').focus();
    await page.keyboard.type('typed');
    await page.keyboard.press('Tab');
    expect(await page.getByLabel('image reference (required)').inputValue()).toBe('python:3.12');
    await expectPresentable(page, 'create');
    await page.getByRole('button', { name: 'Create', exact: true }).last().focus();
    await page.keyboard.press('Enter');
    await page.waitForURL(/\/console\/sandboxes\/[\w-]{36}/);
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox', { name: 'A command' }).and(page.locator(':focus')).waitFor();
    await page.keyboard.type('oth');
    await page.getByRole('option', { name: /Sandbox other/ }).waitFor();
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'other' }).waitFor();
  });

  test('a refusal shows its message, the next step and the request id', async () => {
    const { page } = visitor;
    await signInBrowser(page, client.key, '/console/?status=strange');
    const alert = page.getByRole('alert');
    await alert.waitFor();
    expect(await alert.textContent()).toMatch(/Correct the input.*400 invalid_request request [\w-]+/s);
    await expectPresentable(page, 'sandboxes-refused');
  });

  test('a list of many labels and statuses is presentable', async () => {
    const { page } = visitor;
    await create('nightly-report', { team: 'data', env: 'prod' });
    await create('model-eval', { team: 'ml' });
    await create('web-preview-42', { team: 'web', pull: '42' }, true);
    await create('agent-7', { team: 'ml', env: 'dev' }, true);
    await signInBrowser(page, client.key);
    await page.getByRole('row', { name: 'agent-7' }).getByText('running').waitFor();
    await page.getByRole('row', { name: 'web-preview-42' }).getByText('running').waitFor();
    await expectPresentable(page, 'sandboxes');
    const clip = { x: 0, y: 0, width: 1280, height: 420 };
    await takePicture(page, 'console-sandboxes', clip);
  });

  test('pages follow the cursor in the address, forth and back', async () => {
    const { page } = visitor;
    for (let number = 0; number < 51; number += 1) await create(`box-${String(number).padStart(2, '0')}`);
    await signInBrowser(page, client.key, '/console/?sort=name');
    await page.getByRole('link', { name: 'box-49' }).waitFor();
    expect(await page.getByRole('link', { name: 'box-50' }).count()).toBe(0);
    await page.getByRole('button', { name: 'Next page' }).click();
    await page.getByRole('link', { name: 'box-50' }).waitFor();
    expect(await page.getByRole('row').count()).toBe(2);
    const address = page.url();
    await page.reload();
    await page.getByRole('link', { name: 'box-50' }).waitFor();
    await page.goBack();
    await page.getByRole('link', { name: 'box-00' }).waitFor();
    await page.goto(address);
    await page.getByRole('button', { name: 'First page' }).click();
    await page.getByRole('link', { name: 'box-00' }).waitFor();
  });

  test('values with commas stay whole in the form, and in the filter', async () => {
    const { page } = visitor;
    await signInBrowser(page, client.key, '/console/?create=form');
    await page.getByLabel('name (required)').fill('quoted');
    await page.getByLabel('labels').last().fill('note="a, b", team=ml');
    await page.getByText('All other fields').click();
    await page.getByLabel(/^env/).fill('LIST="1,2"');
    for (const place of [1, 2]) {
      await page.getByRole('button', { name: 'Add a secret variable' }).click();
      await page.getByLabel(`Name of secret variable ${place}`).fill(`TOKEN_${place}`);
      await page.getByLabel(`Value of secret variable ${place}`).fill(`hidden-${place}`);
    }
    await page.getByRole('button', { name: 'Publish a port' }).click();
    await page.getByLabel('Port of the sandbox 1').fill('53');
    await page.getByLabel('Protocol 1').selectOption('udp');
    await expectPresentable(page, 'create-secret-variables');
    await page.getByRole('button', { name: 'Remove secret variable 1' }).click();
    // A change of the other variables leaves the secret one as it is.
    await page.getByLabel(/^env/).fill('LIST="1,2", MODE=quiet');
    await page.getByRole('button', { name: 'curl, CLI, SDK' }).click();
    const lines = await page.getByRole('dialog').innerText();
    expect(lines).toContain('the secret variable TOKEN_2');
    expect(lines).toContain('{"key":"TOKEN_2","value":"***","secret":true}');
    expect(lines).not.toContain('hidden');
    await page.getByRole('button', { name: 'Form', exact: true }).click();
    expect(await page.getByLabel(/^env/).inputValue()).toBe('LIST="1,2", MODE=quiet');
    await page.getByRole('button', { name: 'Create', exact: true }).last().click();
    await page.getByRole('heading', { level: 1, name: 'quoted' }).waitFor();
    const { body } = await client.get('/v1/sandboxes/by-name/quoted');
    expect(body.spec).toMatchObject({
      labels: { note: 'a, b', team: 'ml' },
      env: [
        { key: 'LIST', value: '1,2' },
        { key: 'MODE', value: 'quiet' },
        { key: 'TOKEN_2', secret: true },
      ],
    });
    expect(JSON.stringify(body)).not.toContain('hidden');
    const [port] = body.spec.network.ports;
    expect(port).toMatchObject({ guest_port: 53, host_bind: '127.0.0.2', protocol: 'udp' });
    const shown = page.getByText(`127.0.0.2:${port.host_port} leads to udp port 53`);
    await shown.waitFor();
    await create('other');
    await page.goto('/console/sandboxes');
    await page.getByRole('link', { name: 'other' }).waitFor();
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByLabel('Labels').fill('note="a, b"');
    await page.getByRole('link', { name: 'other' }).waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'quoted' }).waitFor();
    expect(await page.getByLabel('Labels').inputValue()).toBe('note="a, b"');
  });

  test('a batch is made in the main form, and the ends of commands and runs are shown', async () => {
    const { page } = visitor;
    const simulated = service.runtime as SimulatedRuntime;
    await signInBrowser(page, client.key, '/console/?create=form');
    await page.getByLabel('name (required)').fill('batch');
    // The section of the other fields stays closed.
    await page.getByLabel('runtime cmd').fill('["work"]');
    await page.getByLabel('lifecycle ends with command').selectOption('yes');
    await page.getByRole('button', { name: 'Create', exact: true }).last().click();
    await page.getByRole('heading', { level: 1, name: 'batch' }).waitFor();
    const { body } = await client.get('/v1/sandboxes/by-name/batch');
    expect(body.spec).toMatchObject({ runtime: { cmd: ['work'] }, lifecycle: { ends_with_command: true } });

    const serves = { name: 'serves', image: IMAGE, runtime: { cmd: ['serve'] } };
    const { id } = (await client.post('/v1/sandboxes', serves, { start: true, wait_for: 'running' })).body;
    const idle = await create('idle', {}, true);
    await page.goto('/console/sandboxes');
    await page.getByRole('row', { name: 'serves' }).getByText('running').waitFor();
    simulated.endCommand(id, { exitCode: 137, signal: 9, outOfMemory: true, endedAt: now() });
    await page.getByRole('row', { name: 'serves' }).getByText('ran out of memory').waitFor();
    await client.post(`/v1/sandboxes/${idle}/stop`, {}, { wait_for: 'stopped' });
    await page.getByRole('row', { name: 'idle' }).getByText('requested').waitFor();
    await page.getByRole('button', { name: 'Filter' }).click();
    await page.getByLabel('Stopped for').selectOption('requested');
    await page.keyboard.press('Escape');
    await page.getByRole('link', { name: 'serves' }).waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'idle' }).click();
    await page.getByText('It stopped: a caller stopped it.').waitFor();
    await page.goto(`/console/sandboxes/${id}`);
    await page.getByText('The sandbox runs, but its command ran out of memory and was killed').waitFor();
    await page.getByText('Command ended: killed by signal 9, exit code 137, out of memory').waitFor();
    await expectPresentable(page, 'sandbox-command-ended');
  });

  test('scripts in names of labels are text', async () => {
    const { page } = visitor;
    await create('web', { '<img src=x onerror=alert(1)>': '"><script>alert(1)</script>' });
    await signInBrowser(page, client.key);
    await page.getByText('<script>alert(1)</script>').waitFor();
    expect(await page.locator('td img, td script').count()).toBe(0);
  });
});
