import { expect, test } from 'vitest';
import { now } from '../../src/lib/instant.js';
import { insertLog } from '../../src/templates/log-queries.js';
import { archiveOf, build, endedBuild } from '../support/templates.js';
import { describeBrowser, expectPresentable, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

const DOCKERFILE = 'FROM busybox AS main\nENV A=1 B=two\nUSER 1000\nCMD ["serve", "all"]\nEXPOSE 80\n';

describeBrowser('the pages of templates', () => {
  /** Runs in each capture. */
  let during = async () => Promise.resolve();
  const its = useConsole({ simulated: { onCapture: async () => during() } });

  function holdCaptures(): () => void {
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => (release = resolve));
    during = async () => held;
    return release;
  }

  test('a template is built of commands, a Dockerfile or an archive, and refused by its field', async () => {
    const { client } = its;
    const { page } = its.visitor;
    await signInBrowser(page, client.key, '/console/templates');
    await page.getByText('No template yet').waitFor();
    await expectPresentable(page, 'templates-empty');
    await page.getByRole('button', { name: 'Create' }).click();
    const form = page.getByRole('dialog', { name: 'Create a template' });
    await form.getByLabel('Name and tag').fill('a:b:c');
    await form.getByLabel('Image').fill('busybox');
    await form.getByLabel('Commands', { exact: false }).last().fill('echo hello\n\ntrue');
    await form.getByRole('button', { name: 'Build', exact: true }).click();
    await form.locator('[aria-invalid=true][name=tag]:focus').waitFor();
    await expectPresentable(page, 'templates-create');
    await form.getByLabel('Name and tag').fill('tools:1');
    await form.getByRole('button', { name: 'Build', exact: true }).click();
    // Nothing runs in a simulated sandbox.
    await page.getByRole('heading', { level: 1, name: 'tools:1' }).waitFor();
    await page
      .locator('.fault-message')
      .getByText(/^Line 2: /)
      .waitFor();
    const steps = page.getByRole('list').filter({ hasText: 'echo hello' }).first();
    await steps.getByText('failed').waitFor();
    await steps.getByText('one more').waitFor();
    await expectPresentable(page, 'template-failed');

    await page.goto('/console/templates?create=dockerfile');
    await form.getByLabel('Name and tag').fill('tools:2');
    await form.getByLabel('Dockerfile (required)').fill('FROM busybox\nVOLUME /x\n');
    await form.getByRole('button', { name: 'Build', exact: true }).click();
    const refused = form.locator('textarea[aria-invalid=true]:focus');
    await refused.waitFor();
    await form.getByRole('alert').getByText('Line 2 of the Dockerfile: VOLUME').waitFor();
    await form.getByRole('button', { name: 'File', exact: true }).click();
    await form.getByRole('alert').waitFor({ state: 'detached' });
    const buffer = Buffer.from(await archiveOf({ 'deploy/Containerfile': DOCKERFILE, 'a.txt': 'a' }));
    await form.locator('input[type=file]').setInputFiles({ name: 'a.tar', mimeType: 'x/tar', buffer });
    await form.getByText('Resources, values and the cache').click();
    await form.getByLabel('Path of the Dockerfile').fill('deploy/Containerfile');
    await form.getByLabel('Stage to build').fill('none');
    await form.getByRole('button', { name: 'Build', exact: true }).click();
    await form.locator('[aria-invalid=true][name=target]:focus').waitFor();
    await form.getByRole('alert').getByText('no such stage; its stages are main').waitFor();
    await form.getByLabel('Stage to build').fill('main');
    await form.getByLabel('Memory of the build').fill('64');
    await form.getByLabel('run every step again').check();
    await form.getByLabel('Labels').fill('team=ml');
    await expectPresentable(page, 'templates-create-file');
    await form.getByRole('button', { name: 'Build', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'tools:2' }).waitFor();
    await page.getByRole('status').getByText('succeeded').waitFor();
    await page.getByRole('term').filter({ hasText: 'Stage' }).waitFor();
    const { body } = await client.get('/v1/templates', { status: 'succeeded' });
    expect(body.data).toMatchObject([
      { name: 'tools', tag: '2', target: 'main', labels: { team: 'ml' }, dockerfile: DOCKERFILE },
    ]);
    expect(body.data[0].context_digest).toMatch(/^sha256:/);
  });

  test('the log and the steps are followed, a build is cancelled, and a sandbox started from the result', async () => {
    const { client, service } = its;
    const { page } = its.visitor;
    const release = holdCaptures();
    await signInBrowser(page, client.key, '/console/templates?create=file');
    const form = page.getByRole('dialog', { name: 'Create a template' });
    await form.getByLabel('Name and tag').fill('agent');
    const buffer = Buffer.from(DOCKERFILE);
    await form.locator('input[type=file]').setInputFiles({ name: 'Dockerfile', mimeType: 'x/d', buffer });
    await form.getByRole('button', { name: 'Build', exact: true }).click();
    await page.getByRole('heading', { level: 1, name: 'agent:latest' }).waitFor();
    const log = page.getByRole('log', { name: 'Log' });
    await log.getByText('FROM busybox').waitFor();
    const { data } = (await client.get('/v1/templates')).body;
    const ref = { orgId: client.org.id, templateId: data[0].id as string };
    const say = async (position: number, source: 'build' | 'stdout' | 'stderr', text: string) =>
      insertLog(service.ctx.pool, ref, [{ position, at: now(), source, text }]);
    await say(100, 'stdout', 'installing num');
    await say(101, 'stdout', 'py\nstep 1 of 9: a program says so\n');
    await say(102, 'stderr', 'a warning\n');
    await log.getByText('installing numpy').waitFor();
    await log.getByText('a warning').waitFor();
    expect(await page.getByRole('heading', { name: 'Steps' }).count()).toBe(0);
    await page.getByRole('status').getByText('● following').waitFor();
    await page.getByRole('button', { name: 'Cancel the build' }).waitFor();
    await page.goto('/console/templates');
    await page.getByRole('row', { name: 'agent:latest' }).getByText('building').waitFor();
    // The second waits for its turn.
    const { body: second } = await client.post('/v1/templates', DOCKERFILE, { tag: 'other:1' });
    await page.getByRole('link', { name: 'other:1' }).click();
    await page.getByText('it waits for its turn').waitFor();
    await page.getByRole('button', { name: 'Cancel the build' }).click();
    const question = page.getByRole('dialog', { name: 'Cancel this build?' });
    await question.getByRole('button', { name: 'Cancel the build' }).click();
    await page.getByRole('status').getByText('cancelled').waitFor();
    expect((await endedBuild(client, second.id))['status']).toBe('cancelled');

    await page.goBack();
    await page.getByRole('link', { name: 'agent:latest' }).click();
    release();
    await page.getByRole('status').getByText('succeeded').waitFor();
    await page.getByText('the log has ended').waitFor();
    await page.getByText('["serve","all"]').waitFor();
    await expectPresentable(page, 'template');
    await page.getByRole('button', { name: 'Start a sandbox' }).click();
    const start = page.getByRole('dialog', { name: 'Start a sandbox from the template' });
    await start.getByLabel('Name').fill('-');
    await start.getByRole('button', { name: 'Start' }).click();
    await start.locator('[aria-invalid=true][name=name]').waitFor();
    await start.getByLabel('Name').fill('from-agent');
    await start.getByLabel('Memory in MiB').fill('64');
    await start.getByRole('button', { name: 'Start' }).click();
    await page.getByRole('heading', { level: 1, name: 'from-agent' }).waitFor();
    const { body: made } = await client.get('/v1/sandboxes/by-name/from-agent');
    expect(made.spec).toMatchObject({ image: 'busybox', runtime: { user: '1000', cmd: ['serve', 'all'] } });

    await page.goto(`/console/templates/${ref.templateId}`);
    await page.getByRole('button', { name: 'Delete' }).click();
    await page
      .getByRole('dialog', { name: 'Delete this template?' })
      .getByRole('button', { name: 'Delete' })
      .click();
    await page.getByRole('heading', { level: 1, name: 'Templates' }).waitFor();
    await page.getByRole('link', { name: 'agent:latest' }).waitFor({ state: 'detached' });
    expect((await client.get(`/v1/templates/${ref.templateId}`)).status).toBe(404);
  });

  test('the list is filtered, follows other changes, and a reader cannot change it', async () => {
    const { client } = its;
    const { page } = its.visitor;
    await build(client, 'agent:1', DOCKERFILE, { labels: '{"team":"ml","env":"prod","owner":"a"}' });
    await build(client, 'tools:1', '{"from":"busybox","commands":["true"]}');
    const { body } = await client.post('/v1/keys', { name: 'reader', scopes: ['sandboxes:read'] });
    await signInBrowser(page, body.key, '/console/');
    await page.getByRole('navigation').getByRole('link', { name: 'Templates' }).click();
    await page.getByRole('row', { name: 'tools:1' }).getByText('failed').waitFor();
    await expectPresentable(page, 'templates');
    expect(await page.getByRole('button', { name: 'Create' }).count()).toBe(0);
    await page.getByLabel('Status').selectOption('succeeded');
    await page.getByRole('link', { name: 'tools:1' }).waitFor({ state: 'detached' });
    await page.getByRole('searchbox', { name: 'Name' }).fill('none');
    await page.getByText('No template has these').waitFor();
    await page.getByRole('searchbox', { name: 'Name' }).fill('agent');
    await page.getByRole('link', { name: 'agent:1' }).waitFor();
    expect(new URL(page.url()).search).toBe('?status=succeeded&name=agent');
    await build(client, 'agent:2', DOCKERFILE);
    await page.getByRole('link', { name: 'agent:2' }).click();
    await page.getByRole('status').getByText('succeeded').waitFor();
    expect(
      await page
        .getByRole('main')
        .getByRole('button', { name: /Delete|Start/ })
        .count(),
    ).toBe(0);
  });
});
