import { expect, test } from 'vitest';
import { until } from '../support/polling.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

describeBrowser('the page Operations', () => {
  const its = useConsole();

  test('lists forks and captures, also ended ones, and leads to their results', async () => {
    const { client } = its;
    const { page } = its.visitor;
    await signInBrowser(page, client.key, '/console/operations');
    await page.getByRole('heading', { name: 'No fork yet' }).waitFor();
    const { body: source } = await client.post('/v1/sandboxes', smallRequest('source'), {
      start: true,
      wait_for: 'running',
    });
    const fork = await client.post(`/v1/sandboxes/${source.id}/fork`, { count: 2, start: false });
    expect(fork.status).toBe(200);
    await until(
      async () => (await client.get(`/v1/fork-operations/${fork.body.id}`)).body.status,
      (status) => status === 'succeeded',
    );
    const capture = await client.post('/v1/snapshots', { kind: 'disk', sandbox_id: source.id, name: 'kept' });
    expect(capture.status).toBe(200);
    await until(
      async () => (await client.get(`/v1/snapshot-operations/${capture.body.id}`)).body.status,
      (status) => status === 'succeeded',
    );
    await page.reload();
    const row = page.getByRole('table', { name: 'Forks' }).getByRole('row', { name: 'source' });
    await row.getByText('succeeded').waitFor();
    await expectPresentable(page, 'operations');
    await row.getByRole('link', { name: 'source' }).click();
    await page.getByRole('table', { name: 'Copies' }).getByRole('row').nth(2).waitFor();

    await page.goto('/console/operations?kind=captures');
    const captured = page.getByRole('table', { name: 'Captures' }).getByRole('row', { name: 'kept' });
    await captured.getByText('succeeded').waitFor();
    await captured.getByRole('link', { name: 'source', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'source' }).waitFor();
    await page.goBack();
    await captured.getByRole('link', { name: 'kept', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'kept' }).waitFor();
  });
});
