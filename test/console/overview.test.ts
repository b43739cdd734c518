import { expect, test } from 'vitest';
import { FULL_ACCESS } from '../../src/access/access.js';
import { operator } from '../../src/audit/events/actor.js';
import { createKey } from '../../src/keys/create.js';
import { setQuotas } from '../../src/quotas/set.js';
import { untilStatus } from '../support/polling.js';
import { describeBrowser, expectPresentable, signInBrowser, tabTo, takePicture } from './browser.js';
import { useConsole } from './use-console.js';

const IMAGE = { type: 'oci', reference: 'python:3.12' };
const DAY_MS = 86_400_000;

describeBrowser('the overview', () => {
  const its = useConsole({
    simulated: { failStart: ({ spec }) => (spec.image === 'broken' ? 'the image is broken' : undefined) },
  });

  test('is the first page, and teaches the first steps where nothing is', async () => {
    const { page } = its.visitor;
    await signInBrowser(page, its.client.key, '/console/');
    await page.getByRole('heading', { level: 1, name: 'Overview' }).waitFor();
    await page.getByRole('heading', { name: 'First steps' }).waitFor();
    await page.getByText('No start waits for room on a worker.').waitFor();
    await page.getByRole('link', { name: 'Verify the audit log' }).waitFor();
    await expectPresentable(page, 'overview-empty');
    await tabTo(page, page.getByRole('link', { name: 'Create a sandbox' }).last());
    await page.keyboard.press('Enter');
    await page.getByRole('dialog', { name: 'Create a sandbox' }).waitFor();
  });

  test('counts what is, tells what needs attention, and leads there', async () => {
    const { client, service } = its;
    const { page } = its.visitor;
    const start = (name: string, reference: string) =>
      client.post('/v1/sandboxes', { name, image: { ...IMAGE, reference } }, { start: true });
    await start('web', 'python:3.12');
    await start('worker', 'python:3.12');
    const { body: broken } = await start('broken-one', 'broken');
    await untilStatus(client, broken.id, 'failed');
    await client.post('/v1/sandboxes', { name: 'later', image: IMAGE });
    await client.post('/v1/keys', {
      name: 'ends soon',
      scopes: ['sandboxes:read'],
      expires_at: new Date(Date.now() + 3 * DAY_MS).toISOString(),
    });
    await setQuotas(service.ctx.pool, client.org.id, { max_sandboxes: 5 }, operator('test'));
    let release: () => void = () => undefined;
    const isReleased = new Promise<void>((resolve) => (release = resolve));
    await page.route('**/v1/keys?*', async (route) => {
      await isReleased;
      await route.continue();
    });
    await signInBrowser(page, client.key, '/console/');
    const now = page.getByRole('region', { name: 'Sandboxes now' });
    await now.getByRole('link', { name: '2 running' }).waitFor();
    await now.getByRole('link', { name: '1 failed' }).waitFor();
    await now.getByRole('link', { name: '1 created' }).waitFor();
    // The lines come together: one that came later would move the others.
    const log = page.getByRole('link', { name: 'Verify the audit log' });
    expect(await log.count()).toBe(0);
    release();
    await log.waitFor();
    const attention = page.getByRole('region', { name: 'Needs attention' });
    await attention.getByText('the image is broken').waitFor();
    await attention.getByText('4 of 5 used').waitFor();
    await attention.getByText(/the key expires in [23] days/).waitFor();
    const day = page.getByRole('region', { name: 'Last 24 hours' });
    await day.getByText('2 starts').waitFor();
    await day.getByText('1 failure').waitFor();
    await page.getByRole('region', { name: 'Cost' }).getByText('Nothing has a cost yet').waitFor();
    await page.getByRole('region', { name: 'Newest events' }).getByText('broken-one').first().waitFor();
    await expectPresentable(page, 'overview');
    await takePicture(page, 'console-overview', { x: 0, y: 0, width: 1280, height: 860 });
    // A change elsewhere is shown without a reload.
    await client.post('/v1/sandboxes', { name: 'third', image: IMAGE }, { start: true });
    await now.getByRole('link', { name: '3 running' }).waitFor();
    await attention.getByRole('link', { name: 'broken-one' }).click();
    await page.getByRole('heading', { level: 1, name: 'broken-one' }).waitFor();
    await page.goBack();
    await now.getByRole('link', { name: '1 failed' }).click();
    await page.getByRole('row', { name: 'broken-one' }).waitFor();
    expect(new URL(page.url()).search).toBe('?status=failed');
  });

  test('shows a key of few scopes what it may read, and asks for nothing else', async () => {
    const { client, service } = its;
    const { page } = its.visitor;
    await client.post('/v1/sandboxes', { name: 'web', image: IMAGE }, { start: true });
    const access = { ...FULL_ACCESS, scopes: ['sandboxes:read'] as const };
    const { key } = await createKey(service.ctx.pool, client.org.id, 'narrow', operator('test'), access);
    const refused: string[] = [];
    page.on('response', (answer) => {
      // The console learns by its stream of events whether it may follow them.
      if (answer.status() === 403 && !answer.url().endsWith('/events/stream')) refused.push(answer.url());
    });
    await signInBrowser(page, key, '/console/');
    await page.getByRole('link', { name: '1 running' }).waitFor();
    for (const name of ['Capacity', 'Cost', 'Newest events']) {
      expect(await page.getByRole('region', { name }).count()).toBe(0);
    }
    expect(await page.getByRole('link', { name: 'Create a sandbox' }).count()).toBe(0);
    expect(refused).toEqual([]);
    await expectPresentable(page, 'overview-narrow');
  });
});
