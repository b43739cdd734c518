import { expect, test } from 'vitest';
import { CaptureRefusedError } from '../../src/engine/runtime.js';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

const ORIGINAL = {
  name: 'web',
  image: { type: 'oci', reference: 'python:3.12' },
  resources: { vcpus: 2, memory_mib: 256 },
  runtime: { cmd: ['serve', '--all'], workdir: '/srv' },
  env: [
    { key: 'MODE', value: 'quiet' },
    { key: 'TOKEN', value: 'hidden-value', secret: true },
  ],
  labels: { team: 'ml', note: 'a, b' },
  lifecycle: { max_duration_secs: 3600 },
};

describeBrowser('the page of a sandbox', () => {
  /** Runs in each capture of a disk. */
  let during = async () => Promise.resolve();
  const its = useConsole({ simulated: { onCapture: async () => during() } });

  test('a duplicate has the same specification, and says what it lacks', async () => {
    const { client } = its;
    const { page } = its.visitor;
    const { body: original } = await client.post('/v1/sandboxes', ORIGINAL);
    await signInBrowser(page, client.key, `/console/sandboxes/${original.id}`);
    await page.getByRole('link', { name: 'Duplicate' }).click();
    const dialog = page.getByRole('dialog', { name: 'Create a sandbox' });
    await dialog.getByText('This copy does not have: the secret variables TOKEN.').waitFor();
    await expectPresentable(page, 'sandbox-duplicate');
    expect(await dialog.getByLabel('name (required)').inputValue()).toBe('web-copy');
    const hints = (await dialog.locator('small').allTextContents()).join('\n');
    expect(hints).toContain('such as python:3.12.');
    expect(hints).not.toContain('`');
    await dialog.getByLabel('and start it').uncheck();
    await dialog.getByRole('button', { name: 'Create', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'web-copy' }).waitFor();
    const { body: copy } = await client.get('/v1/sandboxes/by-name/web-copy');
    const env = original.spec.env.filter(({ key }: { key: string }) => key !== 'TOKEN');
    expect(copy.spec).toEqual({ ...original.spec, env });
  });

  test('a duplicate of a sandbox that is gone shows the refusal', async () => {
    const { page } = its.visitor;
    const from = '00000000-0000-4000-8000-000000000000';
    await signInBrowser(page, its.client.key, `/console/sandboxes?create=form&from=${from}`);
    await page.getByRole('dialog').getByText(/^404 /).waitFor();
    await page.getByRole('button', { name: 'Close' }).click();
    await page.getByRole('dialog').waitFor({ state: 'detached' });
    expect(new URL(page.url()).search).toBe('');
  });

  test('the runs are a picture, and the lines of each tool name the sandbox', async () => {
    const { client } = its;
    const { page } = its.visitor;
    const { body } = await client.post('/v1/sandboxes', ORIGINAL, { start: true, wait_for: 'running' });
    await client.post(`/v1/sandboxes/${body.id}/stop`, {}, { wait_for: 'stopped' });
    await client.post(`/v1/sandboxes/${body.id}/start`, {}, { wait_for: 'running' });
    await signInBrowser(page, client.key, `/console/sandboxes/${body.id}`);
    await page.getByRole('img', { name: /^2 runs since / }).waitFor();
    await page.getByRole('region', { name: 'Cost so far' }).getByText('There is no price book').waitFor();
    await page.getByText('Use it from a program').click();
    const cli = page.getByLabel('CLI lines', { exact: true });
    expect(await cli.textContent()).toContain("msb exec 'web' -- echo hello");
    const curl = (await page.getByLabel('curl lines', { exact: true }).textContent())!;
    expect(curl).toContain(`${its.service.url}/v1/sandboxes/by-name/web/exec`);
    await expectPresentable(page, 'sandbox-overview');
    await page.getByRole('link', { name: 'Runs' }).click();
    await page.getByRole('table', { name: 'Runs' }).getByText('Stopped').waitFor();
    await expectPresentable(page, 'sandbox-runs-strip');
  });

  test('a fork makes copies with the wanted names and parts, which the page follows', async () => {
    const { client } = its;
    const { page } = its.visitor;
    const running = { start: true, wait_for: 'running' };
    const { body: source } = await client.post('/v1/sandboxes', ORIGINAL, running);
    await signInBrowser(page, client.key, `/console/sandboxes/${source.id}`);
    await page.getByRole('button', { name: 'Fork' }).click();
    const form = page.getByRole('dialog', { name: 'Fork web' });
    await form.getByLabel('Copies').fill('2');
    await form.getByLabel('Beginning of their names').fill('-');
    await form.getByRole('button', { name: 'Fork' }).click();
    await form.locator('[name=name_prefix][aria-invalid=true]:focus').waitFor();
    await form.getByLabel('Beginning of their names').fill('attempt');
    await form.getByLabel('Labels beside those').fill('task=build');
    await expectPresentable(page, 'sandbox-fork');
    await form.getByRole('button', { name: 'Fork' }).click();
    const copies = page.getByRole('region', { name: 'Fork' });
    await copies.getByRole('status').getByText('succeeded').waitFor();
    await copies.getByRole('row', { name: 'attempt-1' }).getByText('running').waitFor();
    await copies.getByRole('row', { name: 'attempt-2' }).getByText('running').waitFor();
    await expectPresentable(page, 'sandbox-forked');
    const { body: first } = await client.get('/v1/sandboxes/by-name/attempt-1');
    expect(first.spec.labels).toEqual({ ...ORIGINAL.labels, task: 'build' });
    const keysOf = ({ spec }: typeof first) => spec.env.map(({ key }: { key: string }) => key);
    expect(keysOf(first)).toEqual(['MODE']);
    // The address has the operation, so that a reload shows the copies again.
    await page.reload();
    await copies.getByRole('link', { name: 'attempt-2' }).waitFor();
    await copies.getByRole('button', { name: 'Close the fork' }).click();
    await copies.waitFor({ state: 'detached' });

    await page.getByRole('button', { name: 'Fork' }).click();
    await form.getByLabel('Or the name of each').fill('left\nright\n');
    expect(await form.getByLabel('Copies').inputValue()).toBe('2');
    await form.getByLabel('start when the disk').uncheck();
    await form.getByLabel('get the secrets').check();
    await form.getByRole('button', { name: 'Fork' }).click();
    await copies.getByRole('status').getByText('succeeded').waitFor();
    await copies.getByRole('row', { name: 'right' }).getByText('created').waitFor();
    await copies.getByRole('link', { name: 'left' }).click();
    await page.getByRole('heading', { level: 1, name: 'left' }).waitFor();
    const { body: left } = await client.get('/v1/sandboxes/by-name/left');
    expect(keysOf(left)).toEqual(['MODE', 'TOKEN']);
  });

  test('a fork whose capture fails says why', async () => {
    const { client } = its;
    const { page } = its.visitor;
    during = async () => Promise.reject(new CaptureRefusedError('sandbox_changed', 'the disk is on fire'));
    const { body: source } = await client.post('/v1/sandboxes', ORIGINAL, {
      start: true,
      wait_for: 'running',
    });
    await signInBrowser(page, client.key, `/console/sandboxes/${source.id}?fork=form`);
    await page.getByRole('dialog').getByRole('button', { name: 'Fork' }).click();
    const copies = page.getByRole('region', { name: 'Fork' });
    await copies.getByRole('status').getByText('failed').waitFor();
    await copies.getByText('No copies are made: the disk is on fire.').waitFor();
    expect(await copies.getByRole('row').count()).toBe(0);
  });
});
