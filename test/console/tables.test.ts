import type { Locator, Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { describeBrowser, expectPresentable, signInBrowser, tabTo } from './browser.js';
import { useConsole } from './use-console.js';

const IMAGE = { type: 'oci', reference: 'python:3.12' };
/** A row of one line, with its padding and border, is lower than two lines of text. */
const TWO_LINES_PX = 44;

const headOf = (page: Page, title: string) => page.getByRole('columnheader', { name: title, exact: true });

/** The names in the order of the rows. */
const namesIn = (page: Page) => page.locator('tbody tr td:nth-child(2)').allTextContents();

describeBrowser('tables of the console', () => {
  const its = useConsole();

  async function create(name: string, more: object = {}): Promise<string> {
    const { status, body } = await its.client.post('/v1/sandboxes', { name, image: IMAGE, ...more });
    expect(status).toBe(200);
    return body.id as string;
  }

  test('each row is one line on a laptop, and labels after the second are a count', async () => {
    const { page } = its.visitor;
    await create('a-name-that-is-as-long-as-the-names-that-programs-make-for-their-sandboxes', {
      labels: { team: 'a-team-with-a-long-name', env: 'production', tier: 'backend', zone: 'eu' },
      resources: { vcpus: 2, memory_mib: 128 },
    });
    await its.client.post('/v1/sandboxes', { name: 'runs', image: IMAGE }, { start: true });
    await signInBrowser(page, its.client.key);
    await page.getByRole('row', { name: 'runs' }).getByText('running').waitFor();
    for (const row of await page.getByRole('row').all()) {
      expect((await row.boundingBox())!.height).toBeLessThan(TWO_LINES_PX);
    }
    await page.getByText('128 MiB', { exact: true }).waitFor();
    expect(await page.getByText('zone=eu').count()).toBe(0);
    await page.getByRole('button', { name: '+2, show all' }).click();
    await page.getByText('zone=eu').waitFor();
    await expectPresentable(page, 'tables-long-rows');
  });

  test('a click on a head orders the rows, and tells screen readers the order', async () => {
    const { page } = its.visitor;
    await create('middle', { resources: { vcpus: 1, memory_mib: 1024 } });
    await create('zebra', { resources: { vcpus: 1, memory_mib: 256 } });
    await create('ant', { resources: { vcpus: 1, memory_mib: 2048 } });
    await signInBrowser(page, its.client.key);
    await page.getByRole('link', { name: 'zebra' }).waitFor();
    expect(await namesIn(page)).toEqual(['ant', 'zebra', 'middle']);
    expect(await headOf(page, 'Created').getAttribute('aria-sort')).toBe('descending');
    // The service orders by name and by creation.
    await headOf(page, 'Created').getByRole('button').click();
    await expect.poll(() => namesIn(page)).toEqual(['middle', 'zebra', 'ant']);
    await headOf(page, 'Name').getByRole('button').click();
    await expect.poll(() => namesIn(page)).toEqual(['ant', 'middle', 'zebra']);
    expect(await headOf(page, 'Name').getAttribute('aria-sort')).toBe('ascending');
    expect(await headOf(page, 'Created').getAttribute('aria-sort')).toBe('none');
    // The page has all rows, so it orders by any column; by keyboard too.
    await tabTo(page, headOf(page, 'Memory').getByRole('button'));
    await page.keyboard.press('Enter');
    await expect.poll(() => headOf(page, 'Memory').getAttribute('aria-sort')).toBe('descending');
    expect(await namesIn(page)).toEqual(['ant', 'middle', 'zebra']);
    await page.keyboard.press('Enter');
    await expect.poll(() => namesIn(page)).toEqual(['zebra', 'middle', 'ant']);
    expect(new URL(page.url()).search).toBe('?sort=memory');
    expect(await headOf(page, 'Memory').getAttribute('aria-sort')).toBe('ascending');
    await page.reload();
    await expect.poll(() => namesIn(page)).toEqual(['zebra', 'middle', 'ant']);
  });

  test('a list with further pages has only the orders of the service', async () => {
    const { page } = its.visitor;
    for (let number = 0; number < 51; number += 1) await create(`box-${String(number).padStart(2, '0')}`);
    await signInBrowser(page, its.client.key, '/console/sandboxes?sort=memory');
    await page.getByRole('link', { name: 'box-50' }).waitFor();
    expect(await headOf(page, 'Name').getByRole('button').count()).toBe(1);
    expect(await headOf(page, 'Memory').getByRole('button').count()).toBe(0);
  });

  test('all pages are one table, which is live and ordered by any column', async () => {
    const { page } = its.visitor;
    const ids: string[] = [];
    for (let number = 0; number < 120; number += 1) {
      const resources = { vcpus: 1, memory_mib: 128 + (number % 60) };
      ids.push(await create(`box-${String(number).padStart(3, '0')}`, { resources }));
    }
    await signInBrowser(page, its.client.key, '/console/sandboxes?sort=name');
    await tabTo(page, page.getByRole('button', { name: 'Show all in one table' }));
    await page.keyboard.press('Enter');
    await page.getByRole('status').getByText('120 sandboxes').waitFor();
    expect(new URL(page.url()).searchParams.get('show')).toBe('all');
    await page.getByRole('link', { name: 'box-119' }).waitFor();
    await headOf(page, 'Memory').getByRole('button').click();
    await expect.poll(async () => (await namesIn(page)).slice(0, 2)).toEqual(['box-119', 'box-059']);
    await expectPresentable(page, 'tables-whole');
    // A change, a deletion and a creation elsewhere are shown without a reload.
    await its.client.post(`/v1/sandboxes/${ids[59]}/start`);
    await page.getByRole('row', { name: 'box-059' }).getByText('running').waitFor();
    await its.client.delete(`/v1/sandboxes/${ids[119]}`);
    await page.getByRole('link', { name: 'box-119' }).waitFor({ state: 'detached' });
    await create('newest', { resources: { vcpus: 1, memory_mib: 4096 } });
    await page.getByRole('link', { name: 'newest' }).waitFor();
    await page.getByRole('button', { name: 'Show pages' }).click();
    await page.getByRole('button', { name: 'Next page' }).waitFor();
  });

  test('a row of all pages that was read for another filter does not bring that list back', async () => {
    const { page } = its.visitor;
    const id = await create('kept-1');
    await create('other-1');
    await signInBrowser(page, its.client.key, '/console/sandboxes?show=all');
    await page.getByRole('link', { name: 'other-1' }).waitFor();
    let release: () => void = () => undefined;
    const isReleased = new Promise<void>((resolve) => (release = resolve));
    const isAsked = page.waitForRequest((request) => request.url().endsWith(`/v1/sandboxes/${id}`));
    const isAnswered = page.waitForResponse((response) => response.url().endsWith(`/v1/sandboxes/${id}`));
    await page.route(`**/v1/sandboxes/${id}`, async (route) => {
      await isReleased;
      await route.continue();
    });
    await its.client.post(`/v1/sandboxes/${id}/start`);
    await isAsked;
    await page.getByLabel('Name contains').fill('kept');
    await page.getByRole('link', { name: 'other-1' }).waitFor({ state: 'detached' });
    release();
    await isAnswered;
    await page.getByRole('row', { name: 'kept-1' }).getByText('running').waitFor();
    expect(await page.getByRole('link', { name: 'other-1' }).count()).toBe(0);
  });

  test('columns and density are chosen, and the browser keeps them but no key', async () => {
    const { page } = its.visitor;
    await create('one');
    await signInBrowser(page, its.client.key);
    await page.getByRole('link', { name: 'one' }).waitFor();
    const height = async (row: Locator) => (await row.boundingBox())!.height;
    const before = await height(page.getByRole('row').nth(1));
    await page.getByRole('button', { name: 'View' }).click();
    const view = page.getByRole('group', { name: 'View of Sandboxes' });
    await view.getByLabel('Image').uncheck();
    await view.getByLabel('Disk').check();
    await view.getByRole('button', { name: 'compact' }).click();
    await expectPresentable(page, 'tables-view');
    await page.keyboard.press('Escape');
    await view.waitFor({ state: 'detached' });
    const expectChosen = async () => {
      await headOf(page, 'Disk').waitFor();
      expect(await headOf(page, 'Image').count()).toBe(0);
      expect(await height(page.getByRole('row').nth(1))).toBeLessThan(before);
    };
    await expectChosen();
    await page.reload();
    await expectChosen();
    expect(await page.evaluate('JSON.stringify(localStorage)')).not.toContain(its.client.key);
    // Other values under these names must not break the page.
    await page.evaluate(
      `localStorage.setItem('sandkeep.columns', '{"Sandboxes Image": "no"}');
       localStorage.setItem('sandkeep.filters', '[broken');`,
    );
    await page.reload();
    await headOf(page, 'Image').waitFor();
  });

  test('filters are chips in one bar, and are saved under a name that their link has', async () => {
    const { page } = its.visitor;
    await create('web-1', { labels: { team: 'ml', env: 'prod' } });
    await create('web-2', { labels: { team: 'ml' } });
    await create('other');
    await signInBrowser(page, its.client.key);
    await page.getByRole('link', { name: 'other' }).waitFor();
    await page.getByRole('button', { name: 'Filter' }).click();
    const filters = page.getByRole('group', { name: 'Filters', exact: true });
    await filters.getByLabel('Labels').fill('team=ml, env=prod');
    await page.getByRole('link', { name: 'web-2' }).waitFor({ state: 'detached' });
    await filters.getByRole('button', { name: 'created' }).click();
    await filters.getByRole('button', { name: 'failed' }).click();
    const chips = page.getByRole('list', { name: 'Filters in force' });
    await chips.getByText('Status: created or failed').waitFor();
    await expectPresentable(page, 'tables-filters');
    await page.keyboard.press('Escape');
    await chips.getByRole('button', { name: 'Remove: env=prod' }).click();
    await page.getByRole('link', { name: 'web-2' }).waitFor();

    await page.getByRole('button', { name: 'Saved' }).click();
    await page.getByLabel('Name of this filter').fill('Ours <b>');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Saved: Ours <b>' }).waitFor();
    const { searchParams } = new URL(page.url());
    expect(Object.fromEntries(searchParams)).toMatchObject({ labels: '{"team":"ml"}', filter: 'Ours <b>' });
    // Another filter is no longer the saved one.
    await chips.getByRole('button', { name: 'Remove all' }).click();
    await page.getByRole('link', { name: 'other' }).waitFor();
    expect(new URL(page.url()).search).toBe('');
    await page.reload();
    await page.getByRole('button', { name: 'Saved', exact: true }).click();
    await expectPresentable(page, 'tables-saved');
    await page.getByRole('link', { name: 'Ours <b>' }).click();
    await page.getByRole('link', { name: 'other' }).waitFor({ state: 'detached' });
    await page.getByRole('button', { name: 'Saved: Ours <b>' }).click();
    await page.getByRole('button', { name: 'Forget the filter Ours <b>' }).click();
    await page.getByRole('link', { name: 'Ours <b>' }).waitFor({ state: 'detached' });
    await page.getByRole('link', { name: 'Failed' }).click();
    await page.getByRole('heading', { name: 'No sandbox matches' }).waitFor();
    await page.getByRole('button', { name: 'Remove the filters' }).click();
    await page.getByRole('link', { name: 'other' }).waitFor();
  });

  test('a link with a saved filter works in a browser that never saved it', async () => {
    const { page } = its.visitor;
    await create('web', { labels: { team: 'ml' } });
    await create('other');
    const labels = encodeURIComponent('{"team":"ml"}');
    await signInBrowser(page, its.client.key, `/console/sandboxes?labels=${labels}&filter=Ours`);
    await page.getByRole('link', { name: 'web', exact: true }).waitFor();
    expect(await page.getByRole('link', { name: 'other' }).count()).toBe(0);
    await page.getByRole('button', { name: 'Saved: Ours' }).waitFor();
  });
});
