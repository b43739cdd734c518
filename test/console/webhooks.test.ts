import { afterAll, beforeAll, beforeEach, expect, test } from 'vitest';
import { webhookSettings } from '../../src/settings.js';
import { until } from '../support/polling.js';
import { startReceiver, verify, type Receiver } from '../support/webhook-receiver.js';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

const LOCAL = webhookSettings({ webhookAllow: ['127.0.0.1'], webhookHttp: true });
const HOSTILE = '<script>alert(1)</script>';

describeBrowser('the pages of webhooks', () => {
  const its = useConsole({ settings: { webhooks: LOCAL } });
  let receiver: Receiver;
  beforeAll(async () => {
    receiver = await startReceiver();
  });
  beforeEach(() => receiver.reset());
  afterAll(() => receiver.close());

  test('a webhook is created, tested, sent events, and its deliveries are shown and sent again', async () => {
    const { client } = its;
    const { page } = its.visitor;
    await signInBrowser(page, client.key, '/console/webhooks');
    await page.getByRole('heading', { name: 'No webhook yet' }).waitFor();
    await page.getByRole('button', { name: 'Create' }).click();
    const form = page.getByRole('dialog', { name: 'Create a webhook' });
    await form.getByLabel('Address').fill('ftp://example.com');
    await form.getByRole('button', { name: 'Create' }).click();
    await form.getByRole('alert').waitFor();
    await form.getByLabel('Address').fill(`${receiver.url}hooks`);
    await form.getByLabel('Description').fill(HOSTILE);
    await form.getByLabel('Event types').fill('volume_created');
    await expectPresentable(page, 'webhooks-create');
    await form.getByRole('button', { name: 'Create' }).click();
    const shown = page.getByRole('dialog', { name: 'The secret of the webhook' });
    const secret = (await shown.getByLabel('secret', { exact: true }).textContent())!.trim();
    await shown.getByRole('button', { name: 'I have stored it' }).click();
    await expectPresentable(page, 'webhooks');
    await page.getByRole('link', { name: `${receiver.url}hooks` }).click();
    expect(await page.content()).not.toContain(secret);

    await page.getByRole('button', { name: 'Send a test' }).click();
    await page.getByRole('row').nth(1).getByText('delivered').waitFor();
    const [message] = receiver.messages;
    expect(verify(secret, message!.headers, message!.text)).toBe(true);

    receiver.answer = () => 500;
    await page.getByRole('button', { name: 'Send a test' }).click();
    await page.getByText('The test failed: the receiver answered 500.').waitFor();

    receiver.answer = () => ({ status: 400, headers: {} });
    await client.post('/v1/volumes', { name: 'sent' });
    const row = page.getByRole('row', { name: 'volume_created' });
    await row.getByText('400', { exact: true }).waitFor();
    await row.getByRole('timer').waitFor();
    await expectPresentable(page, 'webhook');
    await row.getByRole('button', { name: 'volume_created' }).click();
    const delivery = page.getByRole('dialog', { name: 'volume_created' });
    await delivery.getByText('thanks').first().waitFor();
    const sent = receiver.messages.at(-1)!;
    expect(
      JSON.parse((await delivery.getByLabel('body of the request', { exact: true }).textContent())!),
    ).toEqual(sent.body);
    await expectPresentable(page, 'webhook-delivery');
    await page.keyboard.press('Escape');

    receiver.answer = () => 200;
    const before = receiver.messages.length;
    await page
      .getByRole('row')
      .last()
      .getByRole('button', { name: /^Redeliver/ })
      .click();
    await until(
      () => Promise.resolve(receiver.messages.length),
      (count) => count > before,
    );
  });

  test('a webhook is changed, disabled, given a new secret, and deleted', async () => {
    const { client } = its;
    const { page } = its.visitor;
    const { body: webhook } = await client.post('/v1/webhooks', { url: `${receiver.url}one` });
    const shown = async () => (await client.get(`/v1/webhooks/${webhook.id}`)).body;
    await signInBrowser(page, client.key, `/console/webhooks/${webhook.id}`);
    await page.getByRole('button', { name: 'Change' }).click();
    const form = page.getByRole('dialog', { name: 'Change the webhook' });
    expect(await form.getByLabel('Address').inputValue()).toBe(`${receiver.url}one`);
    await form.getByLabel('Event types').fill('!sandbox_started, !sandbox_stopped');
    expect(await form.getByLabel('Format').inputValue()).toBe('sandkeep');
    await form.getByLabel('Format').selectOption('OCSF 1.8.0');
    await form.getByRole('button', { name: 'Save' }).click();
    await page.getByText('!sandbox_started, !sandbox_stopped').waitFor();
    await page.getByText('OCSF 1.8.0').waitFor();
    await page.getByRole('button', { name: 'Disable' }).click();
    await page.getByRole('button', { name: 'Enable' }).waitFor();
    expect(await shown()).toMatchObject({
      status: 'disabled',
      event_types: ['!sandbox_started', '!sandbox_stopped'],
      format: 'ocsf',
    });
    await page.getByRole('button', { name: 'Rotate the secret' }).click();
    await page
      .getByRole('dialog', { name: 'Rotate the secret' })
      .getByRole('button', { name: 'Rotate' })
      .click();
    const secret = page.getByRole('dialog', { name: 'The secret of the webhook' });
    expect(await secret.getByLabel('secret', { exact: true }).textContent()).not.toContain(webhook.secret);
    await expectPresentable(page, 'webhook-secret');
    await secret.getByRole('button', { name: 'I have stored it' }).click();
    expect(await page.getByRole('timer').textContent()).toMatch(/^23 h 5\d min$|^1 d$/);
    await page.getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Delete' }).click();
    await page.getByRole('heading', { name: 'No webhook yet' }).waitFor();
  });
});
