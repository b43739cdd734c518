import axeCore from 'axe-core';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { chromium, type Browser, type BrowserContext, type Locator, type Page } from 'playwright-core';
import { describe, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';

const CHROMIUM = '/usr/bin/chromium';
const SCREENSHOTS = join(PACKAGE_ROOT, 'test-results', 'console');
/** A phone, a laptop, and a 4k screen. */
const WIDTHS = [360, 1280, 3840];
const SCHEMES = ['light', 'dark'] as const;

const HAS_BROWSER = existsSync(CHROMIUM) || process.env['SANDKEEP_TEST_BROWSER'] === 'required';
const SKIPPED = `SKIPPED: there is no ${CHROMIUM}`;

/** Skipped with a message without a browser; with SANDKEEP_TEST_BROWSER=required, as in CI, they fail. */
export const describeBrowser = HAS_BROWSER
  ? describe
  : (name: string, body: () => void) => describe.skip(`${name} — ${SKIPPED}`, body);

/** The same for one test among others. */
export const testInBrowser = HAS_BROWSER
  ? test
  : (name: string, body: () => Promise<void>) => test.skip(`${name} — ${SKIPPED}`, body);

export function launch(): Promise<Browser> {
  return chromium.launch({ executablePath: CHROMIUM, args: ['--no-sandbox', '--disable-dev-shm-usage'] });
}

export interface Visitor {
  context: BrowserContext;
  page: Page;
  /** Faults of scripts and of the Content-Security-Policy. Failed requests are not among them. */
  faults: string[];
}

export async function newVisitor(browser: Browser, url: string): Promise<Visitor> {
  const context = await browser.newContext({ baseURL: url, acceptDownloads: true });
  await context.grantPermissions(['clipboard-read', 'clipboard-write'], { origin: url });
  const page = await context.newPage();
  page.setDefaultTimeout(60_000);
  const faults: string[] = [];
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) {
      faults.push(message.text());
    }
  });
  return { context, page, faults };
}

export async function signInBrowser(page: Page, key: string, path = '/console/'): Promise<void> {
  await page.goto(path);
  await page.getByLabel('API key').fill(key);
  await page.getByLabel('API key').press('Enter');
  const heading = page.getByRole('heading', { level: 1 }).and(page.locator(':not(.sign-in h1)'));
  await heading.waitFor().catch(async (cause: unknown) => {
    const shown = await page.locator('body').innerText();
    throw new Error(`no page came after the sign-in, but at ${page.url()}: ${shown}`, { cause });
  });
}

/** Pictures in each width and scheme for a person to look at, and axe in both schemes. */
export async function expectPresentable(page: Page, name: string): Promise<void> {
  mkdirSync(SCREENSHOTS, { recursive: true });
  const violations: string[] = [];
  for (const colorScheme of SCHEMES) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: width === 360 ? 740 : 900 });
      await page.screenshot({ path: join(SCREENSHOTS, `${name}-${colorScheme}-${width}.png`) });
      const overflow = await page.evaluate(
        'document.documentElement.scrollWidth - document.documentElement.clientWidth',
      );
      if (overflow !== 0) violations.push(`${colorScheme} ${width}: ${String(overflow)} px too wide`);
      if (width === 3840) continue;
      for (const { id, nodes } of await axe(page)) {
        for (const { html, failureSummary } of nodes)
          violations.push(`${colorScheme} ${width} ${id}: ${html}: ${failureSummary}`);
      }
    }
  }
  await page.emulateMedia({ colorScheme: 'light' });
  await page.setViewportSize({ width: 1280, height: 900 });
  expect(violations).toEqual([]);
}

/** Moves the focus by the Tab key alone. */
export async function tabTo(page: Page, target: Locator): Promise<void> {
  const focused = target.and(page.locator(':focus'));
  for (let presses = 0; presses < 100; presses += 1) {
    if ((await focused.count()) > 0) return;
    await page.keyboard.press('Tab');
  }
  throw new Error(`the Tab key does not reach ${String(target)}`);
}

interface Violation {
  id: string;
  nodes: { html: string; failureSummary: string }[];
}

async function axe(page: Page): Promise<Violation[]> {
  await page.evaluate(axeCore.source);
  return page.evaluate('axe.run({ resultTypes: ["violations"] }).then(({ violations }) => violations)');
}
