import { expect, test } from 'vitest';
import type { MemberRow } from '../../src/members/queries.js';
import { newMember, send, signInMember } from '../support/members.js';
import { until } from '../support/polling.js';
import { describeBrowser, enterBrowser, expectPresentable, signInBrowser } from './browser.js';
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
    await form.getByLabel('Role').selectOption('viewer');
    await form.getByLabel('Labels').fill('service.team=ml');
    await form.getByRole('button', { name: 'Change' }).click();
    await form
      .getByRole('alert')
      .getByText(/label "service.team"/)
      .waitFor();
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

  test('shows what changes owners to owners alone, and not for the last one', async () => {
    const { client, service } = its;
    const { page } = its.visitor;
    const [owner, admin] = [
      await newMember(service, client.org.id, 'owner'),
      await newMember(service, client.org.id, 'admin'),
    ];
    const enter = async (member: MemberRow) => {
      const session = await signInMember(service, client.org.id, member);
      await enterBrowser(its.visitor, service.url, session);
      await page.goto('/console/members');
      await page.getByRole('table', { name: 'Members' }).waitFor();
      return session;
    };
    const table = page.getByRole('table', { name: 'Members' });
    const actionsOf = ({ email }: MemberRow) =>
      table.getByRole('row', { name: email }).getByRole('button').allTextContents();
    const rolesToInvite = async () => {
      await page.getByRole('button', { name: 'Invite' }).click();
      const options = await page.getByRole('dialog').getByLabel('Role').getByRole('option').allTextContents();
      await page.keyboard.press('Escape');
      return options;
    };

    const session = await enter(owner);
    expect(await actionsOf(owner)).toEqual([]);
    expect(await actionsOf(admin)).toEqual(['Change', 'Remove']);
    expect(await rolesToInvite()).toContain('owner');
    for (const role of ['owner', 'viewer']) {
      const invited = await send(session, 'POST', '/v1/invitations', { email: `${role}@example.com`, role });
      expect(invited.status).toBe(200);
    }
    const second = await newMember(service, client.org.id, 'owner');
    await until(
      () => actionsOf(owner),
      (actions) => actions.join() === 'Change,Remove',
    );

    await enter(admin);
    expect(await actionsOf(owner)).toEqual([]);
    expect(await actionsOf(second)).toEqual([]);
    expect(await actionsOf(admin)).toEqual(['Change', 'Remove']);
    expect(await rolesToInvite()).not.toContain('owner');
    await page.getByRole('button', { name: 'Revoke the invitation of viewer@example.com' }).waitFor();
    expect(
      await page.getByRole('button', { name: 'Revoke the invitation of owner@example.com' }).count(),
    ).toBe(0);
  });
});
