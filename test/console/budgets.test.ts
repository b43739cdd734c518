import { expect, test } from 'vitest';
import { addMillis, now } from '../../src/lib/instant.js';
import { parsePriceBook } from '../../src/prices/price-book.js';
import { insertRun, makeBudget } from '../support/budgets.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

const BOOK = JSON.stringify({
  currency: 'EUR',
  prices: { vcpu_hour: '1', memory_gib_hour: '0', disk_gib_hour: '0', storage_gib_hour: '0' },
});
const HOUR_MS = 3_600_000;
/** The service is in the middle of the next month, so that its month has a past on every day. */
const today = new Date();
const AHEAD_MS = Date.UTC(today.getUTCFullYear(), today.getUTCMonth() + 1, 15, 12) - today.getTime();
const clock = () => addMillis(now(), AHEAD_MS);

describeBrowser('the page Budgets', () => {
  const its = useConsole({ now: clock, settings: { priceBook: parsePriceBook(BOOK, 'book.json') } });

  /** A run of two vCPUs that ended an hour ago. */
  async function ran(hours: number): Promise<void> {
    const { client, service } = its;
    const { body } = await client.post('/v1/sandboxes', smallRequest('worker'));
    const [from, to] = [addMillis(clock(), -(hours + 1) * HOUR_MS), addMillis(clock(), -HOUR_MS)];
    await insertRun(service.ctx.pool, client, {
      sandbox: body.id,
      from,
      to,
      resources: [2, 1024, 0],
      key: client.keyId,
    });
  }

  test('a budget is created, refused by its field, shown with its use, changed and deleted', async () => {
    const { client } = its;
    const { page } = its.visitor;
    await signInBrowser(page, client.key, '/console/budgets');
    await page.getByText('No budget yet').waitFor();
    await expectPresentable(page, 'budgets-empty');
    await page.getByRole('button', { name: 'Create' }).click();
    const form = page.getByRole('dialog', { name: 'Create a budget' });
    await form.getByLabel('Name').fill('ml');
    await form.getByLabel('Covers').selectOption('label');
    await form.getByLabel('Key of the label').fill('team');
    await form.getByLabel('Value of the label').fill('ml');
    await form.getByRole('option', { name: 'cost in EUR' }).waitFor({ state: 'attached' });
    await form.getByLabel('Adds up').selectOption('vcpu_hours');
    await form.getByLabel('Limit of a month').fill('0');
    await form.getByLabel('At 100 %').selectOption('refuse_starts');
    await form.getByRole('button', { name: 'Create' }).click();
    const refused = form.locator('[aria-invalid=true]:focus');
    await refused.waitFor();
    expect(await refused.getAttribute('name')).toBe('limit');
    await form.getByRole('alert').getByText('Limit must be above 0').waitFor();
    await expectPresentable(page, 'budgets-create');
    await form.getByLabel('Limit of a month').fill('1000');
    await form.getByLabel('Events at').fill('50, much');
    await form.getByRole('button', { name: 'Create' }).click();
    await refused.and(page.locator('[name=thresholds]')).waitFor();
    expect(await form.getByRole('alert').count()).toBe(1);
    await form.getByLabel('Events at').fill('50 % 75 %');
    await form.getByRole('button', { name: 'Create' }).click();
    const ml = page.getByRole('region', { name: 'ml', exact: true });
    await ml.getByText('0 of 1,000 vCPU-hours').waitFor();
    await ml.getByText('Covers sandboxes with team=ml.').waitFor();
    await ml.getByText('nothing that it covers can be started').waitFor();
    const { body } = await client.get('/v1/budgets');
    expect(body.data).toMatchObject([
      {
        name: 'ml',
        scope: { type: 'label', key: 'team', value: 'ml' },
        measure: 'vcpu_hours',
        limit: '1000',
        thresholds: [50, 75],
        action: 'refuse_starts',
      },
    ]);

    // A change elsewhere is shown without a reload.
    await ran(9);
    await makeBudget(client, { name: 'all', measure: 'cost', limit: '20.005' });
    const all = page.getByRole('region', { name: 'all', exact: true });
    await all.getByText('€18.00 of €20.005').waitFor();
    await all.getByText('80 % reached').waitFor();
    await makeBudget(client, {
      name: 'ci',
      measure: 'sandbox_hours',
      limit: '9',
      scope: { type: 'api_key', api_key_id: client.keyId },
      action: 'stop',
    });
    const ci = page.getByRole('region', { name: 'ci', exact: true });
    await ci.getByText('9 of 9 sandbox-hours').waitFor();
    await ci.getByText('used up').waitFor();
    await ci.getByRole('img', { name: /^ci: 100 % used, \d+ % by the forecast$/ }).waitFor();
    const { data: keys } = (await client.get('/v1/keys')).body;
    await ci.getByText(`Covers runs of the key ${keys[0].name}.`).waitFor();
    await expectPresentable(page, 'budgets');

    await page.getByRole('button', { name: 'Change ml' }).click();
    const change = page.getByRole('dialog', { name: 'Change the budget' });
    await change.getByLabel('Name').fill('all');
    await change.getByRole('button', { name: 'Save' }).click();
    await change.locator('[aria-invalid=true][name=name]').waitFor();
    await change.getByLabel('Name').fill('machine learning');
    await change.getByLabel('Limit of a month').fill('2500.5');
    await change.getByRole('button', { name: 'Save' }).click();
    await change.waitFor({ state: 'detached' });
    const renamed = page.getByRole('region', { name: 'machine learning' });
    await renamed.getByText('0 of 2,500.5 vCPU-hours').waitFor();
    await page.getByRole('button', { name: 'Delete machine learning' }).click();
    await page
      .getByRole('dialog', { name: 'Delete this budget?' })
      .getByRole('button', { name: 'Delete' })
      .click();
    await renamed.waitFor({ state: 'detached' });
    const { data } = (await client.get('/v1/budgets')).body;
    expect(data.map(({ name }: { name: string }) => name)).toEqual(['all', 'ci']);
  });

  test('the overview has the month against the budget of the organization, and those past a threshold', async () => {
    const { client } = its;
    const { page } = its.visitor;
    await ran(9);
    await makeBudget(client, { name: 'hours', limit: '1000', measure: 'vcpu_hours' });
    await makeBudget(client, { name: 'money', limit: '18', measure: 'cost', action: 'refuse_starts' });
    await signInBrowser(page, client.key, '/console/');
    const cost = page.getByRole('region', { name: 'Cost' });
    await cost.getByText('€18.00 of €18.00').waitFor();
    await cost.getByRole('img', { name: /^money: 100 % used/ }).waitFor();
    const attention = page.getByRole('region', { name: 'Needs attention' });
    await attention.getByText('€18.00 of €18.00 used, starts are refused').waitFor();
    expect(await attention.getByRole('link', { name: 'hours' }).count()).toBe(0);
    await expectPresentable(page, 'overview-budget');
    // A change elsewhere is shown without a reload.
    await makeBudget(client, { name: 'early', limit: '20', measure: 'vcpu_hours', thresholds: [90] });
    await attention.getByText('18 of 20 vCPU-hours used').waitFor();
    await attention.getByRole('link', { name: 'early' }).click();
    await page.getByRole('heading', { level: 1, name: 'Budgets' }).waitFor();
  });

  test('a session without the scopes has no button, or no entry', async () => {
    const { client } = its;
    const { page } = its.visitor;
    await makeBudget(client, { name: 'all' });
    const keyWith = async (scope: string) =>
      (await client.post('/v1/keys', { name: scope, scopes: [scope] })).body.key as string;
    const entry = page.getByRole('navigation').getByRole('link', { name: 'Budgets' });
    await signInBrowser(page, await keyWith('billing:read'), '/console/');
    await entry.click();
    await page.getByRole('region', { name: 'all' }).waitFor();
    expect(await page.getByRole('main').getByRole('button').count()).toBe(0);
    await page.context().clearCookies();
    await signInBrowser(page, await keyWith('sandboxes:read'), '/console/');
    await page.getByRole('navigation').getByRole('link', { name: 'Snapshots' }).waitFor();
    expect(await entry.count()).toBe(0);
    await page.keyboard.press('Control+k');
    await page.getByRole('option', { name: 'Open Sandboxes' }).waitFor();
    expect(await page.getByRole('option', { name: /budget/i }).count()).toBe(0);
  });
});
