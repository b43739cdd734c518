import type { Browser } from 'playwright-core';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import {
  cleanUp,
  kill,
  launch as launchProgram,
  makeFolder,
  ready,
  type Served,
} from '../support/processes.js';
import { freePort } from '../support/free-port.js';
import { describeBrowser, expectPresentable, launch, newVisitor, signInBrowser } from './browser.js';

describeBrowser('the console beside a service that is killed', () => {
  const folder = makeFolder();
  const dataDir = join(folder, 'data');
  let browser: Browser;
  let service: Served;

  /** The next process has the port of the first. No connection takes it in between. */
  let port: number;
  const start = () => {
    const fixed = ['--json', '--port', String(port), '--runtime', 'simulated', '--log-level', 'warn'];
    return ready(launchProgram(['serve', ...fixed, '--data-dir', dataDir]), dataDir);
  };
  beforeAll(async () => {
    port = await freePort();
    service = await start();
    browser = await launch();
  });
  afterAll(async () => {
    await browser.close();
    await cleanUp(folder);
  });

  test('says so, keeps what was shown and the session, and goes on with the next process', async () => {
    const { url, firstKey } = service;
    const { page, context } = await newVisitor(browser, url);
    const create = (name: string) =>
      fetch(`${url}/v1/sandboxes`, {
        method: 'POST',
        headers: { authorization: `Bearer ${firstKey}`, 'content-type': 'application/json' },
        body: JSON.stringify({ name, image: { type: 'oci', reference: 'python:3.12' } }),
      });
    expect((await create('before')).status).toBe(200);
    await signInBrowser(page, firstKey!);
    await page.getByRole('link', { name: 'before' }).waitFor();
    kill('SIGKILL', service.pid);
    await service.exited;
    await page.getByRole('columnheader', { name: 'Name' }).getByRole('button').click();
    const banner = page.getByText('The service does not answer. The page shows');
    await banner.waitFor();
    await expectPresentable(page, 'killed');
    service = await start();
    await banner.waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'before' }).waitFor();
    // The stream of events has begun again too.
    expect((await create('after')).status).toBe(200);
    await page.getByRole('link', { name: 'after' }).waitFor();
    await context.close();
  });
});
