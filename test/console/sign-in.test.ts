import type { Browser } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import { operator } from '../../src/audit/events/actor.js';
import { addMember } from '../../src/members/add.js';
import type { Client } from '../support/client.js';
import { linkOf, newMember } from '../support/members.js';
import { startProvider, startServiceWith, type TestProvider } from '../support/openid/provider.js';
import type { TestService } from '../support/service.js';
import { describeBrowser, expectPresentable, launch, newVisitor, type Visitor } from './browser.js';

describeBrowser('the sign-in of a person', () => {
  let provider: TestProvider;
  let service: TestService;
  let browser: Browser;
  let client: Client;
  let visitor: Visitor;

  beforeAll(async () => {
    provider = await startProvider();
    service = await startServiceWith(provider.settings);
    await provider.register();
    browser = await launch();
  });
  afterAll(async () => {
    await browser.close();
    await service.close();
    await provider.close();
  });
  beforeEach(async () => {
    client = await service.newOrg();
    visitor = await newVisitor(browser, service.url);
  });
  afterEach(async () => {
    expect(visitor.faults).toEqual([]);
    await visitor.context.close();
  });

  test('by the provider opens the page that was asked for, and the sign-out ends it there too', async () => {
    const { page } = visitor;
    const email = 'ada@example.com';
    await provider.setAccount('ada', { email, email_verified: true, name: 'Ada' });
    const other = await service.newOrg();
    for (const { org } of [client, other]) {
      const member = { email, role: 'owner', displayName: 'Ada' } as const;
      await addMember(service.ctx.pool, org.id, member, operator('test'));
    }
    await page.goto('/console/volumes');
    const signIn = page.getByRole('link', { name: 'Sign in with the test provider' });
    await signIn.waitFor();
    await expectPresentable(page, 'sign-in');
    await signIn.click();
    await page.getByLabel('Account').fill('ada');
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('heading', { name: 'Volumes', level: 1 }).waitFor();
    expect(new URL(page.url()).pathname).toBe('/console/volumes');

    const menu = page.locator('.menu.account');
    const button = menu.getByRole('button').first();
    await button.click();
    await menu.getByText('Signed in as Ada (owner)').waitFor();
    const before = (await button.innerText()).trim();
    const target = [client.org, other.org].find(({ name }) => name !== before)!;
    await menu.getByLabel('Organization').selectOption({ label: target.name });
    await button.filter({ hasText: target.name }).waitFor();

    await button.click();
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.waitForURL(`${provider.settings.issuer}/**`);
    await page.getByRole('button', { name: /yes/i }).click();
    await page.waitForURL('**/console/sign-in');
    await signIn.click();
    // The provider has forgotten the person, too.
    await page.getByLabel('Account').waitFor();
  });

  test('explains a refusal, and a cancelled sign-in', async () => {
    const { page } = visitor;
    await provider.setAccount('stranger', { email: 'stranger@example.com', email_verified: true });
    await page.goto('/console/sign-in');
    await page.getByRole('link', { name: 'Sign in with the test provider' }).click();
    await page.getByLabel('Account').fill('stranger');
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.getByRole('alert').getByText('The account is no member of an organization.').waitFor();
    await expectPresentable(page, 'sign-in-refused');
  });

  test('by an invitation makes the account a member', async () => {
    const { page } = visitor;
    const email = 'grace@example.com';
    await provider.setAccount('grace', { email, email_verified: true, name: 'Grace' });
    const { body } = await client.post('/v1/invitations', { email, role: 'viewer' });
    await page.goto(body.link as string);
    await page.getByText('You are invited to an organization.').waitFor();
    await expectPresentable(page, 'invitation');
    await page.getByRole('link', { name: 'Sign in with the test provider' }).click();
    await page.getByLabel('Account').fill('grace');
    await page.getByRole('button', { name: 'Continue' }).click();
    await page.locator('.menu.account').getByRole('button').first().click();
    await page.getByText('Signed in as Grace (viewer)').waitFor();
  });

  test('by a link asks for a click, works once, and shows the role', async () => {
    const { page } = visitor;
    const member = await newMember(service, client.org.id, 'finance');
    const link = await linkOf(service, client.org.id, member);
    await page.goto(`/console/sign-in#${link}`);
    const button = page.getByRole('button', { name: 'Sign in' });
    await button.waitFor();
    await expectPresentable(page, 'sign-in-link');
    await button.click();
    await page.locator('.menu.account').getByRole('button').first().click();
    await page.getByText(`Signed in as ${member.email} (finance)`).waitFor();
    expect(page.url()).not.toContain(link);

    const second = await newVisitor(browser, service.url);
    await second.page.goto(`/console/sign-in#${link}`);
    await second.page.getByRole('button', { name: 'Sign in' }).click();
    await second.page.getByText('The link is unknown, used or expired').waitFor();
    await second.context.close();
  });
});
