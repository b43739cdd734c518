import { expect, test } from 'vitest';
import { operator } from '../../src/audit/events/actor.js';
import { setQuotas } from '../../src/quotas/set.js';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

describeBrowser('the page Organization', () => {
  const its = useConsole();

  test('quotas are bars with words, and follow the use', async () => {
    const { client, service } = its;
    const { page } = its.visitor;
    const { pool } = service.ctx;
    await setQuotas(pool, client.org.id, { max_sandboxes: 2, max_vcpus_per_sandbox: 4 }, operator('test'));
    const image = { type: 'oci', reference: 'python:3.12' };
    await client.post('/v1/sandboxes', { name: 'one', image });
    await signInBrowser(page, client.key, '/console/organization');
    await page.getByText('1 of 2', { exact: true }).waitFor();
    expect(await page.getByRole('progressbar', { name: 'Sandboxes' }).getAttribute('value')).toBe('0.5');
    await page.getByText('Data of snapshots').waitFor();
    await page.getByText('0 h, no limit').waitFor();
    await client.post('/v1/sandboxes', { name: 'two', image });
    await page.getByText('2 of 2, used up').waitFor();
    await expectPresentable(page, 'organization');
  });

  test('a key without the scopes is shown the refusal, and what it may see', async () => {
    const { client } = its;
    const { page } = its.visitor;
    const { body } = await client.post('/v1/keys', { name: 'reader', scopes: ['sandboxes:read'] });
    await signInBrowser(page, body.key, '/console/organization');
    await page.getByText(client.org.slug, { exact: true }).waitFor();
    await page.getByRole('alert').waitFor();
    expect(await page.getByRole('alert').count()).toBe(1);
    await page.getByText('sandboxes:read', { exact: true }).waitFor();
    await expectPresentable(page, 'organization-reader');
  });
});
