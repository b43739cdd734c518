import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { makeVolume } from '../support/volume-files.js';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

describeBrowser('the pages of volumes', () => {
  const its = useConsole();

  test('a volume is created, filled, changed, deleted and restored', async () => {
    const { client } = its;
    const { page } = its.visitor;
    await signInBrowser(page, client.key, '/console/volumes');
    await page.getByRole('button', { name: 'Create', exact: true }).click();
    const form = page.getByRole('dialog', { name: 'Create a volume' });
    await form.getByLabel('Name').fill('Models');
    await form.getByRole('button', { name: 'Create' }).click();
    await form.getByRole('alert').waitFor();
    await form.getByLabel('Name').fill('models');
    await form.getByLabel('Cap in GiB').fill('2');
    await form.getByLabel('Labels').fill('team=ml');
    await expectPresentable(page, 'volumes-create');
    await form.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { level: 1, name: 'models' }).waitFor();
    const listed = page.getByRole('navigation').getByRole('link', { name: 'Volumes' });
    expect(await listed.getAttribute('aria-current')).toBe('true');

    await page.getByLabel('Upload').setInputFiles({
      name: '<i>weights.bin',
      mimeType: 'application/octet-stream',
      buffer: Buffer.from('kept'),
    });
    await page.getByRole('button', { name: 'Download <i>weights.bin' }).waitFor();
    const downloading = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Download <i>weights.bin' }).click();
    expect(readFileSync(await (await downloading).path(), 'utf8')).toBe('kept');
    await expectPresentable(page, 'volume');

    await page.getByRole('button', { name: 'Change', exact: true }).click();
    const change = page.getByRole('dialog', { name: 'Change the volume' });
    expect(await change.getByLabel('Cap in GiB').inputValue()).toBe('2');
    await change.getByLabel('Cap in GiB').fill('');
    await change.getByRole('button', { name: 'Save' }).click();
    await change.waitFor({ state: 'detached' });
    const id = new URL(page.url()).pathname.split('/').at(-1)!;
    const shown = async () => (await client.get(`/v1/volumes/${id}`)).body;
    expect(await shown()).toMatchObject({ capacity_bytes: null, labels: { team: 'ml' } });

    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    const dialog = page.getByRole('dialog', { name: 'Delete this volume?' });
    expect(await dialog.getByRole('listitem').textContent()).toBe('models');
    await dialog.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('timer').waitFor();
    expect(await page.getByRole('timer').textContent()).toMatch(/^\d+ (d|h|min)/);
    await expectPresentable(page, 'volume-deleted');
    await page.getByRole('button', { name: 'Restore' }).click();
    await page.getByRole('timer').waitFor({ state: 'detached' });
    expect((await shown()).status).toBe('active');
  });

  test('a volume in use is not deleted, and the page leads to its sandboxes', async () => {
    const { client } = its;
    const { page } = its.visitor;
    const { body: volume } = await client.post('/v1/volumes', { name: 'shared' });
    const { status } = await client.post('/v1/sandboxes', {
      name: 'trainer',
      image: { type: 'oci', reference: 'python:3.12' },
      mounts: [{ type: 'named', name: 'shared', guest: '/data' }],
    });
    expect(status).toBe(200);
    await signInBrowser(page, client.key, `/console/volumes/${volume.id}`);
    await page.getByRole('button', { name: 'Delete', exact: true }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('alert').getByText(/^409 /).waitFor();
    await expectPresentable(page, 'volume-in-use');
    await page.getByRole('link', { name: 'trainer' }).click();
    await page.getByRole('heading', { level: 1, name: 'Sandboxes' }).waitFor();
    await page.getByRole('row', { name: 'trainer' }).waitFor();
  });

  test('a long folder draws the rows near the screen, and searches all', async () => {
    const { client, service } = its;
    const { page } = its.visitor;
    const { id, data } = await makeVolume(service, client);
    const name = (number: number) => `${String(number).padStart(4, '0')}.txt`;
    for (let number = 0; number < 1_200; number += 1) writeFileSync(join(data, name(number)), '');
    await signInBrowser(page, client.key, `/console/volumes/${id}`);
    await page.getByText('1,200 of 1,200').waitFor();
    const table = page.getByRole('table', { name: /^Files/ });
    expect(await table.getAttribute('aria-rowcount')).toBe('1201');
    expect(await table.getByRole('row').count()).toBeLessThan(200);
    await expectPresentable(page, 'volume-long-folder');
    await page.keyboard.press('End');
    await page.getByText(name(1_199)).waitFor();
    await expect.poll(() => page.getByText(name(0), { exact: true }).count()).toBe(0);
    expect(await page.getByRole('row', { name: name(1_199) }).getAttribute('aria-rowindex')).toBe('1201');
    await page.keyboard.press('Home');
    await page.getByText(name(0), { exact: true }).waitFor();
    await page.getByLabel('Name contains').fill('077');
    await page.getByText('12 of 1,200').waitFor();
    await expect.poll(() => table.getByRole('row').count()).toBe(13);
    await page.getByLabel('Name contains').fill('.md');
    await page.getByText('No name contains this').waitFor();
  });

  test('the list is live, and has deleted volumes when asked', async () => {
    const { client } = its;
    const { page } = its.visitor;
    await client.post('/v1/volumes', { name: 'first' });
    const { body: gone } = await client.post('/v1/volumes', { name: 'gone' });
    await client.delete(`/v1/volumes/${gone.id}`);
    await signInBrowser(page, client.key, '/console/volumes');
    await page.getByRole('link', { name: 'first' }).waitFor();
    expect(await page.getByRole('link', { name: 'gone' }).count()).toBe(0);
    await client.post('/v1/volumes', { name: 'second', capacity_gib: 3 });
    await page.getByRole('link', { name: 'second' }).waitFor();
    await page.getByRole('button', { name: 'Deleted ones too' }).click();
    await page.getByRole('row', { name: 'gone' }).getByText('deleting').waitFor();
    expect(new URL(page.url()).search).toBe('?include=deleted');
    await expectPresentable(page, 'volumes');
  });
});
