import type { Browser, CDPSession } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { linkOf, newMember } from '../support/members.js';
import { startTestService, type TestService } from '../support/service.js';
import { describeBrowser, expectPresentable, launch, newVisitor, type Visitor } from './browser.js';

describeBrowser('passkeys in a browser', () => {
  let service: TestService;
  let url: string;
  let browser: Browser;
  let client: Client;
  let visitor: Visitor;
  let devtools: CDPSession;
  let authenticatorId: string;

  beforeAll(async () => {
    service = await startTestService();
    // Browsers have passkeys at localhost without TLS, and not at an address.
    url = service.url.replace('127.0.0.1', 'localhost');
    browser = await launch();
  });
  afterAll(async () => {
    await browser.close();
    await service.close();
  });
  beforeEach(async () => {
    client = await service.newOrg();
    visitor = await newVisitor(browser, url);
    devtools = await visitor.context.newCDPSession(visitor.page);
    await devtools.send('WebAuthn.enable');
    authenticatorId = await addAuthenticator();
  });
  afterEach(async () => {
    expect(visitor.faults).toEqual([]);
    await visitor.context.close();
  });

  async function addAuthenticator(): Promise<string> {
    const options = {
      protocol: 'ctap2',
      transport: 'internal',
      hasResidentKey: true,
      hasUserVerification: true,
      isUserVerified: true,
      automaticPresenceSimulation: true,
    } as const;
    return (await devtools.send('WebAuthn.addVirtualAuthenticator', { options })).authenticatorId;
  }

  const button = (name: string) => visitor.page.getByRole('button', { name, exact: true });

  /** Opens an invitation, and adds a passkey. */
  async function join(email: string): Promise<void> {
    const { page } = visitor;
    const { body } = await client.post('/v1/invitations', { email, role: 'developer' });
    await page.goto((body.link as string).replace(service.url, url));
    await button('Sign in').click();
    await page.getByRole('heading', { name: 'Account', level: 1 }).waitFor();
    await add('laptop');
  }

  async function add(name: string): Promise<void> {
    await visitor.page.getByLabel('Name (required)').fill(name);
    await button('Add a passkey').click();
    await visitor.page.getByRole('cell', { name: new RegExp(`^${name}`) }).waitFor();
  }

  async function signOut(): Promise<void> {
    await visitor.page.locator('.menu.account').getByRole('button').first().click();
    await button('Sign out').click();
    await button('Use a passkey').waitFor();
  }

  test('sign in a person who opened an invitation once', async () => {
    const { page } = visitor;
    await join('ada@example.com');
    await expectPresentable(page, 'account');
    await signOut();
    await expectPresentable(page, 'sign-in-passkey');
    await page.goto('/console/sign-in?to=/volumes');
    await button('Use a passkey').click();
    await page.getByRole('heading', { name: 'Volumes', level: 1 }).waitFor();
    await page.locator('.menu.account').getByRole('button').first().click();
    await page.getByText('Signed in as ada@example.com (developer)').waitFor();
    await page.getByRole('link', { name: 'Account and passkeys' }).click();
    await page.getByText('this session').waitFor();
    const { credentials } = await devtools.send('WebAuthn.getCredentials', { authenticatorId });
    expect(credentials).toMatchObject([
      {
        isResidentCredential: true,
        rpId: 'localhost',
        userName: `ada@example.com (${client.org.name})`,
      },
    ]);
  });

  test('are removed, but not the only one, and a device has one of a person', async () => {
    const { page } = visitor;
    await join('grace@example.com');
    await button('Add a passkey').click();
    await page.getByText('This device has a passkey of yours already.').waitFor();
    const remove = page.getByRole('button', { name: 'Remove the passkey laptop' });
    await remove.click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
    await page.getByText('Add another one first.').waitFor();
    expect(await remove.count()).toBe(1);

    await devtools.send('WebAuthn.removeVirtualAuthenticator', { authenticatorId });
    authenticatorId = await addAuthenticator();
    await add('phone');
    await remove.click();
    await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
    await remove.waitFor({ state: 'detached' });
    await page.getByRole('cell', { name: 'phone', exact: true }).waitFor();
    await signOut();
    await button('Use a passkey').click();
    // The page before the sign-out.
    await page.getByRole('heading', { name: 'Account', level: 1 }).waitFor();
    await page.getByText('this session').waitFor();
  });

  test('are refused without verification of the person, and are replaced by a link', async () => {
    const { page } = visitor;
    const member = await newMember(service, client.org.id, 'finance');
    await page.goto(`/console/sign-in#${await linkOf(service, client.org.id, member)}`);
    await button('Sign in').click();
    await page.getByRole('heading', { name: 'Account', level: 1 }).waitFor();
    await add('laptop');
    await signOut();
    await devtools.send('WebAuthn.setUserVerified', { authenticatorId, isUserVerified: false });
    await button('Use a passkey').click();
    await page
      .getByText('The browser has no passkey for this console, or was not allowed to use it.')
      .waitFor();
    await expectPresentable(page, 'passkey-refused');

    await devtools.send('WebAuthn.removeVirtualAuthenticator', { authenticatorId });
    authenticatorId = await addAuthenticator();
    await page.goto('about:blank');
    await page.goto(`/console/sign-in#${await linkOf(service, client.org.id, member)}`);
    await button('Sign in').click();
    await page.getByRole('heading', { name: 'Account', level: 1 }).waitFor();
    await add('new laptop');
    await page.getByRole('cell', { name: 'laptop', exact: true }).waitFor();
  });

  test('sign in to the organization that they were added in', async () => {
    const { page } = visitor;
    await join('lin@example.com');
    await signOut();
    const first = client;
    client = await service.newOrg();
    await join('lin@example.com');
    const { credentials } = await devtools.send('WebAuthn.getCredentials', { authenticatorId });
    const own = credentials.find(({ userName }) => userName?.includes(first.org.name) === true)!;
    const other = credentials.find(({ credentialId }) => credentialId !== own.credentialId)!;
    expect(credentials).toHaveLength(2);
    await signOut();
    // The virtual authenticator does not ask which passkey.
    await devtools.send('WebAuthn.removeCredential', {
      authenticatorId,
      credentialId: other.credentialId,
    });
    await button('Use a passkey').click();
    const menu = page.locator('.menu.account').getByRole('button').first();
    await menu.filter({ hasText: first.org.name }).waitFor();
  });

  test('are explained at an address that browsers have none for', async () => {
    const { page } = visitor;
    const member = await newMember(service, client.org.id, 'viewer');
    await page.goto(`${service.url}/console/sign-in#${await linkOf(service, client.org.id, member)}`);
    await button('Sign in').click();
    await page.getByRole('heading', { name: 'Overview', level: 1 }).waitFor();
    await page.locator('.menu.account').getByRole('button').first().click();
    await page.getByRole('link', { name: 'Account and passkeys' }).click();
    await page.getByText('Passkeys work only at http://localhost').waitFor();
    expect(await button('Add a passkey').count()).toBe(0);
  });
});
