import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { describeImage } from '../support/container-image.js';
import { prepareImages } from '../support/prepare-images.js';
import { makeJupyter } from '../support/programs.js';
import { startPrograms, type ProgramsService } from '../support/programs-service.js';

const JUPYTER = 8_888;
const GIT = 8_080;
const COMMAND = `
git init --quiet --bare /tmp/git/repository.git && node git-http.mjs /tmp/git ${GIT} &
exec python3 -m jupyterlab --app-dir=/opt/python/share/jupyter/lab --ip=127.0.0.1 --port=${JUPYTER} --no-browser \\
  --allow-root --IdentityProvider.token= --notebook-dir=/tmp`;
const execute = promisify(execFile);

if (process.env['SANDKEEP_TEST_JUPYTER'] !== 'required') {
  test.skip('Jupyter — SKIPPED: its image takes minutes; SANDKEEP_TEST_JUPYTER=required runs it');
} else {
  describeImage('Jupyter and git through previews', () => {
    let programs: ProgramsService;
    let image: string;
    prepareImages(() => (image = makeJupyter()));
    beforeAll(async () => {
      programs = await startPrograms(image, COMMAND, [JUPYTER, GIT]);
    });
    afterAll(() => programs?.close());

    test('JupyterLab runs a cell in a kernel over its WebSocket', async () => {
      // Jupyter answers to names that it knows. The other way is its setting ServerApp.allow_remote_access.
      const blocked = await programs.get(await programs.open(JUPYTER), '/lab');
      expect([blocked.status, blocked.text]).toEqual([403, expect.stringContaining('Forbidden')]);
      const { url } = await programs.open(JUPYTER, { host: 'sandbox', path: '/lab?reset' });
      await programs.inBrowser(async (page) => {
        page.setDefaultTimeout(120_000);
        const sockets: string[] = [];
        page.on('websocket', (socket) => sockets.push(socket.url()));
        await page.goto(url);
        await page.locator('.jp-LauncherCard[data-category=Notebook]').first().click();
        await page.getByText('| Idle').waitFor();
        const cell = page.locator('.jp-Notebook .jp-CodeCell .cm-content').first();
        await cell.fill('print(6 * 7, "from the kernel")');
        await cell.press('Shift+Enter');
        await page.getByText('42 from the kernel').waitFor();
        const channels = /^wss:.*\/api\/kernels\/[^/]+\/channels/;
        expect(sockets.filter((socket) => channels.test(socket))).not.toEqual([]);
      });
    });

    test('git clones, pushes and fetches by its own server', async () => {
      const { origin, token } = await programs.open(GIT);
      const { host, hostname, port } = new URL(origin);
      const settings = [
        `http.curloptResolve=${hostname}:${port}:127.0.0.1`,
        `http.extraHeader=x-sandkeep-preview: ${token}`,
        'user.name=Test',
        'user.email=test@example.com',
      ].flatMap((setting) => ['-c', setting]);
      const git = (cwd: string, ...args: string[]) =>
        execute('git', [...settings, ...args], {
          cwd: join(programs.files, cwd),
          env: { ...process.env, GIT_SSL_CAINFO: join(programs.files, 'ca.pem'), GIT_TERMINAL_PROMPT: '0' },
        });
      const write = (name: string, text: string) => writeFileSync(join(programs.files, name), text);
      mkdirSync(join(programs.files, 'one'));
      await git('one', 'init', '--quiet', '--initial-branch=main');
      await git('one', 'remote', 'add', 'origin', `https://${host}/repository.git`);
      // git sends a pack of more than a megabyte in chunks.
      const random = () => Buffer.from(crypto.getRandomValues(new Uint8Array(65_536))).toString('hex');
      write('one/random', Array.from({ length: 48 }, random).join('\n'));
      write('one/README', 'pushed\n');
      await git('one', 'add', '.');
      await git('one', 'commit', '--quiet', '--message=first');
      await git('one', 'push', '--quiet', 'origin', 'main');
      await git('.', 'clone', '--quiet', '--branch=main', `https://${host}/repository.git`, 'two');
      expect(readFileSync(join(programs.files, 'two/README'), 'utf8')).toBe('pushed\n');
      write('two/later', 'later\n');
      await git('two', 'add', '.');
      await git('two', 'commit', '--quiet', '--message=second');
      await git('two', 'push', '--quiet', 'origin', 'main');
      await git('one', 'pull', '--quiet', 'origin', 'main');
      expect(existsSync(join(programs.files, 'one/later'))).toBe(true);
    });
  });
}
