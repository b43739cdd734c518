import { parse as parseCsv } from 'csv-parse/sync';
import { readFileSync } from 'node:fs';
import type { Browser, Page } from 'playwright-core';
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { untilSealed } from '../support/event-log.js';
import { until } from '../support/polling.js';
import { startTestService, type TestService } from '../support/service.js';
import {
  describeBrowser,
  expectPresentable,
  launch,
  newVisitor,
  signInBrowser,
  takePicture,
  tabTo,
  type Visitor,
} from './browser.js';

const HOSTILE = '<img src=x onerror=alert(1)>';

describeBrowser('the page Audit', () => {
  let service: TestService;
  let browser: Browser;
  let client: Client;
  let visitor: Visitor;
  let publicKey: string;

  beforeAll(async () => {
    service = await startTestService();
    publicKey = service.ctx.eventKeys().current.bytes.toString('base64');
    browser = await launch();
  });
  afterAll(async () => {
    await browser.close();
    await service.close();
  });
  beforeEach(async () => {
    client = await service.newOrg();
    visitor = await newVisitor(browser, service.url);
    for (const name of ['reports', 'models', 'cache']) await createVolume(name);
  });
  afterEach(async () => {
    expect(visitor.faults).toEqual([]);
    await visitor.context.close();
  });

  async function createVolume(name: string, labels: Record<string, string> = {}): Promise<void> {
    const { body } = await client.post('/v1/volumes', { name });
    if (Object.keys(labels).length > 0) await client.patch(`/v1/volumes/${body.id}`, { labels });
  }

  const rows = (page: Page) => page.getByRole('region', { name: 'Events' }).getByRole('row');
  const untilRows = (page: Page, count: number) =>
    until(
      async () => (await rows(page).count()) - 1,
      (found) => found === count,
    );
  const verdict = (page: Page) => page.getByRole('region', { name: 'Verification' });

  async function verify(page: Page, keys = ''): Promise<void> {
    await untilSealed(service.ctx.pool, client.org.id);
    await page.getByLabel('Public keys (optional)').fill(keys);
    await page.getByRole('button', { name: 'Verify the chain' }).click();
  }

  /** Changes the lines of the export on their way to the browser. */
  async function tamper(page: Page, change: (lines: string[]) => string[]): Promise<void> {
    await page.route('**/v1/events/export?*', async (route) => {
      const answer = await route.fetch();
      const lines = change((await answer.text()).trimEnd().split('\n'));
      await route.fulfill({ response: answer, body: `${lines.join('\n')}\n` });
    });
  }

  test('filters, also negated ones, are in the address', async () => {
    const { page } = visitor;
    await signInBrowser(page, client.key, '/console/audit?category=volume');
    await page.getByText('models').waitFor();
    expect(await rows(page).count()).toBe(1 + 4);
    await page.getByLabel('Filter by').selectOption('actor_kind');
    await page.getByLabel('Keep or exclude').selectOption('not');
    await page.getByLabel('Value').fill('system');
    await page.keyboard.press('Enter');
    await page.getByRole('listitem').filter({ hasText: 'Kind of actor' }).waitFor();
    await untilRows(page, 3);
    expect(new URL(page.url()).search).toBe('?category=volume&actor_kind=%21system');
    await expectPresentable(page, 'audit-filtered');
    await page.getByRole('button', { name: 'Kind of actor is not system. Turn around' }).click();
    await untilRows(page, 1);
    await page.getByRole('button', { name: 'Remove: Kind of actor is system' }).click();
    await page.getByText('models').waitFor();
    await page.goto('/console/audit?event_type=no_such_type');
    await page.getByRole('alert').getByText('400 invalid_request').waitFor();
    await page.goto(`/console/audit?resource_id=${client.org.id}`);
    await page.getByRole('heading', { name: 'No event matches' }).waitFor();
    await page.getByRole('button', { name: 'Remove the filters' }).click();
    await page.getByText('models').waitFor();
  });

  test('an event opens under its own address, and markup in it is text', async () => {
    const { page } = visitor;
    await createVolume('hostile', { [HOSTILE]: `"><script>${HOSTILE}</script>` });
    await signInBrowser(page, client.key, '/console/audit');
    await page.getByRole('link', { name: 'volume_updated' }).click();
    const dialog = page.getByRole('dialog', { name: 'volume_updated' });
    await dialog.getByText(HOSTILE).first().waitFor();
    expect(await page.locator('dialog img, dialog script').count()).toBe(0);
    const address = page.url();
    expect(address).toMatch(/\/console\/audit\?event=[\w-]{36}$/);
    await expectPresentable(page, 'audit-event');
    await page.goto('/console/');
    await page.goto(address);
    await dialog.getByText(HOSTILE).first().waitFor();
    await dialog.getByRole('button', { name: 'Without this type' }).click();
    await page.getByRole('listitem').filter({ hasText: 'volume_updated' }).waitFor();
    expect(new URL(page.url()).search).toBe('?event_type=%21volume_updated');
    await page.goto('/console/audit?event=00000000-0000-4000-8000-000000000000');
    await page.getByRole('dialog').getByText(/^404 /).waitFor();
  });

  test('live events come on top, and are counted while the list is read', async () => {
    const { page } = visitor;
    await signInBrowser(page, client.key, '/console/audit?category=volume');
    await page.getByText('models').waitFor();
    await page.mouse.move(1, 1);
    await page.getByRole('button', { name: 'Live', exact: true }).click();
    await page.getByText('● live').waitFor();
    await createVolume('arrived');
    await rows(page).nth(1).getByText('arrived').waitFor();
    await rows(page).nth(2).hover();
    await createVolume('held-one');
    await page.getByRole('button', { name: 'Show 1 new event' }).waitFor();
    await createVolume('held-two');
    const held = page.getByRole('button', { name: 'Show 2 new events' });
    await held.waitFor();
    expect(await rows(page).nth(1).textContent()).toContain('arrived');
    await expectPresentable(page, 'audit-live');
    await held.click();
    await rows(page).nth(1).getByText('held-two').waitFor();
    expect(await rows(page).nth(2).textContent()).toContain('held-one');
    expect(page.url()).toContain('live=on');
  });

  test('an export has exactly the filtered events', async () => {
    const { page } = visitor;
    await untilSealed(service.ctx.pool, client.org.id);
    await signInBrowser(page, client.key, '/console/audit?event_type=volume_created&actor_kind=!system');
    await page.getByText('models').waitFor();
    const save = async (name: string) => {
      const downloading = page.waitForEvent('download');
      await page.getByRole('link', { name, exact: true }).click();
      const download = await downloading;
      expect(download.suggestedFilename()).toBe(`events.${name.toLowerCase()}`);
      return readFileSync(await download.path(), 'utf8');
    };
    const records: { payload: string }[] = parseCsv(await save('CSV'), { columns: true });
    expect(records.map(({ payload }) => JSON.parse(payload).name)).toEqual(['reports', 'models', 'cache']);
    const lines = (await save('NDJSON')).trimEnd().split('\n');
    expect(lines.filter((line) => line.includes('"volume_created","actor"'))).toHaveLength(3);
  });

  test('a good chain is verified, with and without the key', async () => {
    const { page } = visitor;
    await signInBrowser(page, client.key, '/console/audit');
    await page.getByRole('button', { name: 'Verify', exact: true }).click();
    await verify(page);
    await verdict(page)
      .getByText(/In order: \d+ entries/)
      .waitFor();
    await verdict(page).getByText('integrity of the chain, not its origin').waitFor();
    await expectPresentable(page, 'audit-verified-chain');
    await verify(page, `${publicKey}  ${service.ctx.eventKeys().current.id}`);
    await verdict(page)
      .getByText(/have signatures of the keys that you gave/)
      .waitFor();
    await expectPresentable(page, 'audit-verified');
    await verify(page, Buffer.alloc(32, 7).toString('base64'));
    await page.getByRole('alert').getByText('Signed by an unknown key').waitFor();
    await verify(page, 'nonsense');
    await page.getByRole('alert').getByText('"nonsense" is not a public key').waitFor();
  });

  test('a changed event is shown in its place, with the expected and the found hash', async () => {
    const { page } = visitor;
    let leaf = '';
    let seq = 0;
    await tamper(page, (lines) =>
      lines.map((line) => {
        if (!line.includes('"name":"models"')) return line;
        ({ leaf, seq } = JSON.parse(line));
        return line.replace('"name":"models"', '"name":"modelz"');
      }),
    );
    await signInBrowser(page, client.key, '/console/audit?verify=open');
    await verify(page, publicKey);
    const alert = verdict(page).getByRole('alert');
    await alert.getByRole('heading', { name: 'Tampered with' }).waitFor();
    expect(await alert.textContent()).toContain(`Entry ${seq} (event `);
    expect(await alert.textContent()).toContain(`Expected${leaf}Found`);
    const chain = alert.getByRole('list', { name: 'The place of the fault' }).getByRole('listitem');
    expect(await chain.count()).toBe(3);
    expect(await chain.nth(1).textContent()).toMatch(new RegExp(`^${seq - 1} .*in order$`));
    expect(await chain.nth(2).textContent()).toMatch(new RegExp(`^${seq} `));
    await expectPresentable(page, 'audit-tampered');
    await takePicture(page, 'console-audit', { x: 0, y: 0, width: 1280, height: 840 });
    await chain.nth(2).getByRole('link').click();
    await page.getByRole('dialog', { name: 'volume_created' }).getByText('"models"').waitFor();
  });

  test.each<[string, (lines: string[]) => string[], RegExp]>([
    ['removed', (lines) => lines.toSpliced(4, 1), /was removed/],
    ['cut off', (lines) => lines.slice(0, -2), /its end was cut off/],
    [
      'forged',
      (lines) => lines.map((line) => line.replace(/"signature":"..../, '"signature":"AAAA')),
      /wrong signature/,
    ],
  ])('a log that was %s is refused', async (_, change, words) => {
    const { page } = visitor;
    await tamper(page, change);
    await signInBrowser(page, client.key, '/console/audit?verify=open');
    await verify(page, publicKey);
    const alert = verdict(page).getByRole('alert');
    await alert.waitFor();
    expect(await alert.textContent()).toMatch(words);
  });

  test('without a secure context the page says why it cannot verify', async () => {
    const { page } = visitor;
    await page.addInitScript('Object.defineProperty(Crypto.prototype, "subtle", { value: undefined })');
    await signInBrowser(page, client.key, '/console/audit?verify=open');
    await page.getByText('not in a secure context').waitFor();
    expect(await page.getByRole('button', { name: 'Verify the chain' }).count()).toBe(0);
    await expectPresentable(page, 'audit-insecure');
  });

  test('the keyboard alone filters, opens and closes an event, and verifies', async () => {
    const { page } = visitor;
    await untilSealed(service.ctx.pool, client.org.id);
    await signInBrowser(page, client.key);
    await page.keyboard.press('Control+k');
    await page.getByRole('combobox', { name: 'A command' }).and(page.locator(':focus')).waitFor();
    await page.keyboard.type('audit');
    await page.keyboard.press('Enter');
    await page.getByRole('heading', { level: 1, name: 'Audit' }).waitFor();
    const reach = (name: string) =>
      tabTo(page, page.getByLabel(name, { exact: true }).or(page.getByText(name, { exact: true })));
    await reach('Value');
    await page.keyboard.type('volume_created');
    await page.keyboard.press('Enter');
    await page.getByRole('listitem').filter({ hasText: 'volume_created' }).waitFor();
    await reach('volume_created');
    await page.keyboard.press('Enter');
    const dialog = page.getByRole('dialog', { name: 'volume_created' });
    await dialog.waitFor();
    await page.keyboard.press('Escape');
    await dialog.waitFor({ state: 'detached' });
    await page.locator('a:focus').getByText('volume_created').waitFor();
    await page.getByRole('button', { name: 'Verify', exact: true }).focus();
    await page.keyboard.press('Enter');
    await page.locator('h2:focus').getByText('Verification').waitFor();
    await reach('Verify the chain');
    await page.keyboard.press('Enter');
    await verdict(page)
      .getByText(/In order/)
      .waitFor();
    expect(visitor.faults).toEqual([]);
  });
});
