import { expect, test } from 'vitest';
import { until } from '../support/polling.js';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

describeBrowser('the pages of pools', () => {
  const its = useConsole();

  test('a pool is created, fills itself, keeps its sandboxes when its size changes, and is deleted', async () => {
    const { client } = its;
    const { page } = its.visitor;
    await signInBrowser(page, client.key, '/console/pools');
    await page.getByRole('button', { name: 'Create' }).click();
    const form = page.getByRole('dialog', { name: 'Create a pool' });
    await form.getByRole('textbox', { name: /^Name/ }).fill('-');
    await form.getByLabel('Image').fill('python:3.12');
    await form.getByRole('button', { name: 'Create' }).click();
    await form.getByRole('alert').waitFor();
    await form.getByRole('textbox', { name: /^Name/ }).fill('python');
    await expectPresentable(page, 'pools-create');
    await form.getByRole('button', { name: 'Create' }).click();
    await page.getByRole('heading', { level: 1, name: 'python' }).waitFor();
    await page.getByText('2 of 2').waitFor();
    await expectPresentable(page, 'pool');

    const shown = async () => (await client.get('/v1/pools/python')).body;
    const before = (await shown()).sandboxes.map(({ id }: { id: string }) => id);
    await page.getByRole('button', { name: 'Change' }).click();
    const change = page.getByRole('dialog', { name: 'Change the pool' });
    await change.getByLabel('Ready sandboxes').fill('3');
    await change.getByLabel('Most that run').fill('9');
    await change.getByRole('button', { name: 'Save' }).click();
    await change.waitFor({ state: 'detached' });
    await page.getByText('3 of 3').waitFor();
    const after = await until(shown, ({ ready }) => ready === 3);
    expect(after.most).toBe(9);
    expect(after.sandboxes.map(({ id }: { id: string }) => id)).toEqual(expect.arrayContaining(before));

    await page.getByRole('navigation').getByRole('link', { name: 'Pools' }).click();
    await page.getByRole('row', { name: 'python' }).waitFor();
    await expectPresentable(page, 'pools');
    await page.getByRole('link', { name: 'python' }).click();
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByText('No pool yet').waitFor();
    expect((await client.get('/v1/pools')).body.data).toEqual([]);
  });
});
