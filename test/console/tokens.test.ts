import { expect, test } from 'vitest';
import { linkOf, newMember } from '../support/members.js';
import { describeBrowser, expectPresentable } from './browser.js';
import { useConsole } from './use-console.js';

describeBrowser('personal tokens', () => {
  const its = useConsole();

  /** Signs in as a new member, by a link. */
  async function enter() {
    const { client, service } = its;
    const { page } = its.visitor;
    const member = await newMember(service, client.org.id, 'developer');
    const link = await linkOf(service, client.org.id, member);
    await page.goto(`${service.url}/console/sign-in#${link}`);
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByRole('heading', { name: 'Overview' }).waitFor();
    return { page, member };
  }

  test('are created, shown once, and revoked', async () => {
    const { client, service } = its;
    const { page, member } = await enter();
    await page.goto(`${service.url}/console/tokens`);
    await page.getByText('Create one here, or with:').waitFor();
    await page.getByRole('button', { name: 'Create' }).click();
    const form = page.getByRole('dialog', { name: 'Create a personal token' });
    await form.getByLabel('Name').fill('laptop');
    await form.getByLabel('Days').fill('7');
    await form.getByRole('button', { name: 'Create' }).click();
    const shown = page.getByRole('dialog', { name: 'The token laptop' });
    const token = (await shown.getByLabel('token', { exact: true }).textContent())!.trim();
    expect(token).toMatch(/^msb_pat_\w{38}$/);
    expect((await client.request('GET', '/v1/me/org', { key: token })).body.role).toBe('developer');
    await page.keyboard.press('Escape');
    await page.getByRole('table', { name: 'Personal tokens' }).getByText(member.email).waitFor();
    await expectPresentable(page, 'tokens');
    await page.getByRole('button', { name: 'Revoke laptop' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await page.getByText('Revoked laptop.').waitFor();
    expect((await client.get('/v1/tokens')).body.data).toEqual([]);
  });

  test('are given to a device by its code', async () => {
    const { client, service } = its;
    const { page } = await enter();
    const begun = await fetch(`${service.url}/console/device/authorization`, {
      method: 'POST',
      body: new URLSearchParams({ client_name: 'sandkeep on laptop' }),
    });
    const device: any = await begun.json();
    await page.goto(device.verification_uri_complete);
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByText('sandkeep on laptop').waitFor();
    await expectPresentable(page, 'device');
    await page.getByRole('button', { name: 'Allow' }).click();
    await page.getByText('The device is signed in.').waitFor();
    const answer = await fetch(`${service.url}/console/device/token`, {
      method: 'POST',
      body: new URLSearchParams({
        grant_type: 'urn:ietf:params:oauth:grant-type:device_code',
        device_code: device.device_code,
      }),
    });
    expect(answer.status).toBe(200);
    expect((await client.get('/v1/tokens')).body.data).toMatchObject([{ name: 'sandkeep on laptop' }]);
  });
});
