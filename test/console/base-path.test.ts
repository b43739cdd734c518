import { expect, test } from 'vitest';
import { describeBrowser, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

const BASE = '/tools/sandkeep';

describeBrowser('the console below a base path', () => {
  const its = useConsole({ settings: { basePath: BASE } });

  test('loads, signs in, reads and writes without a request outside of it', async () => {
    const { page } = its.visitor;
    const outside: string[] = [];
    page.on('request', (request) => {
      const { pathname } = new URL(request.url());
      if (!pathname.startsWith(`${BASE}/`)) outside.push(pathname);
    });
    await signInBrowser(page, its.client.key, `${BASE}/console/volumes`);
    expect(new URL(page.url()).pathname).toBe(`${BASE}/console/volumes`);
    await page.getByRole('link', { name: 'Keys' }).click();
    await page.getByRole('heading', { level: 1, name: 'Keys' }).waitFor();
    expect(new URL(page.url()).pathname).toBe(`${BASE}/console/keys`);
    await page.reload();
    await page.getByRole('heading', { level: 1, name: 'Keys' }).waitFor();
    const [cookie] = await its.visitor.context.cookies();
    expect([cookie!.name, cookie!.path]).toEqual(['sandkeep_session', BASE]);
    const reference = page.locator('a', { hasText: 'API reference' });
    expect(await reference.getAttribute('href')).toBe(`${BASE}/docs/`);
    expect(outside).toEqual([]);
  });
});
