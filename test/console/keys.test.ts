import { expect, test } from 'vitest';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

const HOSTILE = '<img src=x onerror=alert(1)>';

describeBrowser('the page Keys', () => {
  const its = useConsole();

  const statusWith = async (key: string) => (await its.client.request('GET', '/v1/me/org', { key })).status;

  test('a new key is shown once, works, and stays nowhere in the browser', async () => {
    const { client } = its;
    const { page, context } = its.visitor;
    await signInBrowser(page, client.key, '/console/keys');
    await page.getByRole('button', { name: 'Create' }).click();
    const form = page.getByRole('dialog', { name: 'Create a key' });
    await form.getByLabel('Name').fill(HOSTILE);
    await form.getByLabel('Labels').fill('team=ml');
    await form.getByLabel('Networks').fill('127.0.0.0/8, ::1/128');
    await form.getByLabel('Expires').fill('2999-01-01T00:00');
    await form.getByRole('button', { name: 'Run sandboxes' }).click();
    await expectPresentable(page, 'keys-create');
    await form.getByRole('button', { name: 'Create' }).click();
    await form.getByRole('alert').getByText(/scope/i).first().waitFor();
    await form.getByLabel('volumes:write').uncheck();
    await form.getByRole('button', { name: 'Create' }).click();
    const shown = page.getByRole('dialog', { name: `The key ${HOSTILE}` });
    const secret = (await shown.getByLabel('key', { exact: true }).textContent())!.trim();
    expect(secret).toMatch(/^skp_\w{38}$/);
    expect(await statusWith(secret)).toBe(200);
    await expectPresentable(page, 'keys-secret');
    await page.keyboard.press('Escape');
    await shown.waitFor({ state: 'detached' });
    const { body } = await client.get('/v1/keys', { limit: 100 });
    expect(body.data.at(-1)).toMatchObject({
      name: HOSTILE,
      scopes: ['sandboxes:write', 'sandboxes:exec'],
      labels: { team: 'ml' },
      cidrs: ['127.0.0.0/8', '::1/128'],
    });
    await page.getByText(HOSTILE).waitFor();
    const kept = await page.evaluate<string>(
      'JSON.stringify([location.href, history.state, { ...localStorage }, { ...sessionStorage }, document.documentElement.outerHTML])',
    );
    expect(kept).not.toContain(secret);
    expect(JSON.stringify(await context.cookies())).not.toContain(secret);
    await page.goBack();
    await page.reload();
    await page.getByRole('heading', { level: 1, name: 'Keys' }).waitFor();
    expect(await page.content()).not.toContain(secret);
  });

  test('a rotation shows the new secret, and how long the previous one works', async () => {
    const { client } = its;
    const { page } = its.visitor;
    const { body: made } = await client.post('/v1/keys', { name: 'deploy', scopes: ['sandboxes:read'] });
    await signInBrowser(page, client.key, '/console/keys');
    await page.getByRole('button', { name: 'Rotate deploy' }).click();
    const dialog = page.getByRole('dialog', { name: 'Rotate deploy' });
    await dialog.getByLabel('Overlap').selectOption('a day');
    await expectPresentable(page, 'keys-rotate');
    await dialog.getByRole('button', { name: 'Rotate' }).click();
    const shown = page.getByRole('dialog', { name: 'The new secret of deploy' });
    const secret = (await shown.getByLabel('key', { exact: true }).textContent())!.trim();
    expect([await statusWith(secret), await statusWith(made.key)]).toEqual([200, 200]);
    await shown.getByRole('button', { name: 'I have stored it' }).click();
    const countdown = page.getByRole('row', { name: 'deploy' }).getByRole('timer');
    expect(await countdown.textContent()).toMatch(/^23 h 5\d min$|^1 d$/);
    await page.getByRole('button', { name: 'Rotate deploy' }).click();
    await dialog.getByLabel('Overlap').selectOption('none: it ends at once');
    await dialog.getByRole('button', { name: 'Rotate' }).click();
    await shown.getByRole('button', { name: 'I have stored it' }).click();
    await countdown.waitFor({ state: 'detached' });
    expect([await statusWith(secret), await statusWith(made.key)]).toEqual([401, 401]);
  });

  test('a revocation names the key, and that of the session leads to the sign-in', async () => {
    const { client } = its;
    const { page } = its.visitor;
    const { body: made } = await client.post('/v1/keys', { name: 'old laptop', scopes: ['events:read'] });
    await signInBrowser(page, client.key, '/console/keys');
    await page.getByRole('button', { name: 'Revoke old laptop' }).click();
    const dialog = page.getByRole('dialog', { name: 'Revoke this key?' });
    expect(await dialog.getByRole('listitem').textContent()).toBe(`old laptop (${made.prefix}…)`);
    await dialog.getByRole('button', { name: 'Cancel' }).click();
    expect(await statusWith(made.key)).toBe(200);
    await page.getByRole('button', { name: 'Revoke old laptop' }).click();
    await dialog.getByRole('button', { name: 'Revoke' }).click();
    await page.getByRole('row', { name: 'old laptop' }).getByText('revoked').waitFor();
    expect(await statusWith(made.key)).toBe(401);
    await expectPresentable(page, 'keys');
    await page.getByRole('button', { name: 'Revoke test key' }).click();
    await dialog.getByText('You are signed in with this key').waitFor();
    await dialog.getByRole('button', { name: 'Revoke' }).click();
    await page.getByLabel('API key').waitFor();
    expect(await statusWith(client.key)).toBe(401);
  });

  test('a key without the scope is shown the refusal and the next step', async () => {
    const { body } = await its.client.post('/v1/keys', { name: 'reader', scopes: ['sandboxes:read'] });
    const { page } = its.visitor;
    await signInBrowser(page, body.key, '/console/keys');
    const alert = page.getByRole('alert');
    await alert.waitFor();
    expect(await alert.textContent()).toMatch(/the scope keys:read,.*key that has the scope/s);
    await expectPresentable(page, 'keys-refused');
  });
});
