import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { smallRequest } from '../support/sandbox-requests.js';
import { imageIn } from '../support/snapshot-archives.js';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

describeBrowser('the pages of snapshots', () => {
  const its = useConsole();

  test('a snapshot is made of a sandbox, found, exported, started, deleted and restored', async () => {
    const { client } = its;
    const { page } = its.visitor;
    const { body: source } = await client.post('/v1/sandboxes', smallRequest('source'), {
      start: true,
      wait_for: 'running',
    });
    await signInBrowser(page, client.key, '/console/snapshots');
    await page.getByText('No snapshot yet').waitFor();
    await page.goto(`/console/sandboxes/${source.id}`);
    await page.getByRole('button', { name: 'Snapshot' }).click();
    const form = page.getByRole('dialog', { name: 'Create a snapshot' });
    await form.getByRole('textbox', { name: /^Name/ }).fill('-');
    await form.getByRole('button', { name: 'Create' }).click();
    await form.getByRole('alert').waitFor();
    await form.getByRole('textbox', { name: /^Name/ }).fill('prepared');
    await form.getByLabel('Labels').fill('team=ml');
    await expectPresentable(page, 'snapshots-create');
    await form.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { level: 1, name: 'Snapshots' }).waitFor();
    await page.getByRole('row', { name: 'prepared' }).getByText('ready').waitFor();
    await expectPresentable(page, 'snapshots');

    await page.getByLabel('Labels', { exact: true }).fill('team=other');
    await page.getByLabel('Labels', { exact: true }).press('Enter');
    await page.getByRole('link', { name: 'prepared' }).waitFor({ state: 'detached' });
    await page.getByLabel('Labels', { exact: true }).fill('team=ml');
    await page.getByLabel('Labels', { exact: true }).press('Enter');
    await page.getByRole('link', { name: 'prepared' }).click();
    await page.getByRole('heading', { level: 1, name: 'prepared' }).waitFor();
    await expectPresentable(page, 'snapshot');

    const downloading = page.waitForEvent('download');
    await page.getByRole('link', { name: 'Export' }).click();
    const download = await downloading;
    expect(download.suggestedFilename()).toBe('prepared.tar');
    const { manifest } = await imageIn(readFileSync(await download.path()));
    expect(manifest.annotations['org.opencontainers.image.title']).toBe('prepared');

    await page.getByRole('button', { name: 'Start a sandbox' }).click();
    const start = page.getByRole('dialog', { name: 'Start a sandbox from the snapshot' });
    await start.getByRole('textbox', { name: /^Name/ }).fill('from-prepared');
    await start.getByLabel('Memory in MiB').fill('64');
    await expectPresentable(page, 'snapshot-start');
    await start.getByRole('button', { name: 'Start' }).click();
    await page.getByRole('heading', { level: 1, name: 'from-prepared' }).waitFor();
    const { body: made } = await client.get('/v1/sandboxes/by-name/from-prepared');
    const { body: snapshot } = await client.get('/v1/snapshots/by-name/prepared');
    expect([made.disk_snapshot_id, made.spec.labels]).toEqual([snapshot.id, { team: 'ml' }]);

    await page.goto(`/console/snapshots/${snapshot.id}`);
    await page.getByRole('button', { name: 'Delete' }).click();
    await page
      .getByRole('dialog', { name: 'Delete this snapshot?' })
      .getByRole('button', { name: 'Delete' })
      .click();
    await page.getByRole('timer').waitFor();
    await expectPresentable(page, 'snapshot-deleted');
    await page.getByRole('button', { name: 'Restore' }).click();
    await page.getByRole('timer').waitFor({ state: 'detached' });
    expect((await client.get('/v1/snapshots/by-name/prepared')).body.status).toBe('ready');
  });
});
