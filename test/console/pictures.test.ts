import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';
import { launch, newVisitor, TAKES_PICTURES, type Visitor } from './browser.js';
import { Newcomer } from './pictures/newcomer.js';
import { picturesOf } from './pictures/pages.js';
import { startFilled, type Filled } from './pictures/service.js';
import { TASKS } from './pictures/tasks.js';

const FOLDER = join(PACKAGE_ROOT, 'test-results', 'console-pages');
const WIDTHS = [390, 1280, 1920];
const SCHEMES = ['light', 'dark'] as const;
const HOUR_MS = 3_600_000;

/**
 * Pictures of every page for a person, on a service of its own that is filled as a team of thirty leaves it. It starts
 * 40 containers.
 */
describe.runIf(TAKES_PICTURES)('pictures of the console', () => {
  let filled: Filled;
  let browser: Browser;
  let visitor: Visitor;

  beforeAll(async () => {
    filled = await startFilled();
    browser = await launch();
    // The cookie of the session is for the host that the link names.
    const link = filled.link();
    visitor = await newVisitor(browser, new URL(link).origin);
    await visitor.page.goto(link);
    await visitor.page.getByRole('button', { name: 'Sign in' }).click();
    // A first sign-in by a link leads to the passkeys of the account.
    await visitor.page.getByRole('heading', { level: 1, name: 'Account' }).waitFor();
  }, HOUR_MS);
  afterAll(async () => {
    await browser?.close();
    await filled?.stop();
  }, HOUR_MS);

  test(
    'each page in two colours and three widths',
    async () => {
      mkdirSync(FOLDER, { recursive: true });
      const faults: string[] = [];
      for (const { name, path, prepare } of picturesOf(filled)) {
        const { page } = visitor;
        await page.setViewportSize({ width: 1280, height: 900 });
        await page.goto(`/console${path}`);
        await settled(page);
        await prepare?.(page);
        for (const colorScheme of SCHEMES) {
          await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
          for (const width of WIDTHS) {
            await page.setViewportSize({ width, height: width === 390 ? 844 : 900 });
            await settled(page);
            await page.screenshot({
              path: join(FOLDER, `${name}-${colorScheme}-${width}.png`),
              fullPage: true,
            });
            faults.push(...(await faultsOf(page)).map((fault) => `${name} ${width}: ${fault}`));
          }
        }
      }
      expect(faults).toEqual([]);
      expect(visitor.faults).toEqual([]);
    },
    HOUR_MS,
  );

  test(
    'the first tasks of a newcomer, each under a minute',
    async () => {
      mkdirSync(FOLDER, { recursive: true });
      const { page } = visitor;
      await page.emulateMedia({ colorScheme: 'light', reducedMotion: 'reduce' });
      await page.setViewportSize({ width: 1280, height: 800 });
      // The first task starts a sandbox. It would wait behind those that wait.
      await filled.stopWaiting();
      for (const [place, { name, run }] of TASKS.entries()) {
        const person = new Newcomer(page);
        await person.begin();
        await run(person, async () => {
          await settled(page);
          await page.screenshot({ path: join(FOLDER, `task-${place + 1}-${name}.png`) });
        });
        const { clicks, keys, personSeconds, consoleSeconds } = person.result;
        console.log(
          `${name}: ${clicks} clicks, ${keys} keys: a person needs ${personSeconds} s; here it took ${consoleSeconds} s`,
        );
        expect(personSeconds).toBeLessThan(60);
        if (place === 0) await filled.startWaiting();
      }
    },
    HOUR_MS,
  );
});

/** No request is under way that the page waits for, and everything is drawn. */
async function settled(page: Page): Promise<void> {
  await page.getByRole('heading', { level: 1 }).first().waitFor();
  await page.locator('.waiting, [aria-busy=true]').first().waitFor({ state: 'detached' });
  await page.evaluate('new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))');
}

/** Rows of two lines, and a page that is wider than the screen. */
function faultsOf(page: Page): Promise<string[]> {
  return page.evaluate(`(() => {
    const faults = [];
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth > clientWidth) faults.push('the page is ' + (scrollWidth - clientWidth) + ' px too wide');
    for (const row of document.querySelectorAll('tbody tr:not(.gap)')) {
      if (innerWidth > 640 && row.offsetHeight > 44) faults.push('a row of more than one line: ' + row.innerText.slice(0, 80));
    }
    return faults;
  })()`);
}
