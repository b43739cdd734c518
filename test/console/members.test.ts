import { expect, test } from 'vitest';
import { newMember, signInMember } from '../support/members.js';
import { until } from '../support/polling.js';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

describeBrowser('the page Members', () => {
  const its = useConsole();

  test('invites a person by a link, which is shown once, and revokes the invitation', async () => {
    const { client } = its;
    const { page } = its.visitor;
    await signInBrowser(page, client.key, '/console/members');
    await page.getByText('Invite a person here.').waitFor();
    await page.getByRole('button', { name: 'Invite' }).click();
    const form = page.getByRole('dialog', { name: 'Invite a person' });
    await form.getByLabel('Email').fill('grace@example.com');
    await form.getByLabel('Role').selectOption('developer');
    await form.getByLabel('Labels').fill('team=ml');
    await expectPresentable(page, 'members-invite');
    await form.getByRole('button', { name: 'Invite' }).click();
    const shown = page.getByRole('dialog', { name: 'The invitation of grace@example.com' });
    const link = (await shown.getByLabel('link', { exact: true }).textContent())!.trim();
    expect(link).toMatch(/\/console\/sign-in#ski_\w{43}$/);
    await page.keyboard.press('Escape');
    await page.getByRole('table', { name: 'Open invitations' }).getByText('grace@example.com').waitFor();
    const { body } = await client.get('/v1/invitations');
    expect(body.data).toMatchObject([
      { email: 'grace@example.com', role: 'developer', labels: { team: 'ml' } },
    ]);
    await page.getByRole('button', { name: 'Revoke the invitation of grace@example.com' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Revoke' }).click();
    await page.getByText('Revoked the invitation of grace@example.com.').waitFor();
    expect((await client.get('/v1/invitations')).body.data).toEqual([]);
  });

  test('changes the role of a member and its labels, and removes it', async () => {
    const { client, service } = its;
    const { page } = its.visitor;
    const member = await newMember(service, client.org.id, 'finance');
    const session = await signInMember(service, client.org.id, member);
    await signInBrowser(page, client.key, '/console/members');
    await page.getByRole('button', { name: `Change ${member.email}` }).click();
    const form = page.getByRole('dialog', { name: `Change ${member.email}` });
    await form.getByLabel('Role').selectOption('owner');
    await form.getByRole('button', { name: 'Change' }).click();
    await form
      .getByRole('alert')
      .getByText(/only an owner/i)
      .waitFor();
    await form.getByLabel('Role').selectOption('viewer');
    await form.getByLabel('Labels').fill('team=ml');
    await form.getByRole('button', { name: 'Change' }).click();
    await page.getByText(`${member.email} has the role viewer.`).waitFor();
    await expectPresentable(page, 'members');
    const { body } = await client.get('/v1/members');
    expect(body.data).toMatchObject([{ id: member.id, role: 'viewer', labels: { team: 'ml' } }]);
    await page.getByRole('button', { name: `Remove ${member.email}` }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
    await page.getByText(`Removed ${member.email}.`).waitFor();
    await until(
      async () => (await session.fetch('/v1/me/org')).status,
      (status) => status === 401,
    );
  });
});
