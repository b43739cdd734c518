import axeCore from 'axe-core';
import { existsSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import {
  chromium,
  type Browser,
  type BrowserContext,
  type Locator,
  type Page,
  type PageScreenshotOptions,
} from 'playwright-core';
import { describe, expect, test } from 'vitest';
import { PACKAGE_ROOT } from '../../src/lib/package-root.js';

const CHROMIUM = '/usr/bin/chromium';
const PICTURES = join(PACKAGE_ROOT, 'test-results', 'console');
/** A picture of a 4k screen takes Chromium half a second of a processor, and nobody looks at those of CI. */
export const TAKES_PICTURES = process.env['SANDKEEP_TEST_PICTURES'] === '1';
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
  // The default is 30 seconds. That of the context holds for new tabs too.
  context.setDefaultTimeout(120_000);
  const page = await context.newPage();
  const faults: string[] = [];
  page.on('pageerror', (error) => faults.push(String(error)));
  page.on('console', (message) => {
    if (message.type() === 'error' && !message.text().startsWith('Failed to load resource')) {
      faults.push(message.text());
    }
  });
  return { context, page, faults };
}

export async function signInBrowser(page: Page, key: string, path = '/console/sandboxes'): Promise<void> {
  await page.goto(path);
  await page.getByLabel('API key').fill(key);
  await page.getByLabel('API key').press('Enter');
  const heading = page.getByRole('heading', { level: 1 }).and(page.locator(':not(.sign-in h1)'));
  await heading.waitFor().catch(async (cause: unknown) => {
    const shown = await page.locator('body').innerText();
    throw new Error(`no page came after the sign-in, but at ${page.url()}: ${shown}`, { cause });
  });
}

/** Signs the browser in with the session of a member. */
export async function enterBrowser(
  { context }: Visitor,
  url: string,
  { cookie }: { cookie: string },
): Promise<void> {
  const [name, value] = cookie.split('=') as [string, string];
  await context.clearCookies();
  await context.addCookies([{ name, value, url }]);
}

/** A picture for a person, where SANDKEEP_TEST_PICTURES is 1. */
export async function takePicture(page: Page, name: string, clip?: Clip): Promise<void> {
  if (!TAKES_PICTURES) return;
  mkdirSync(PICTURES, { recursive: true });
  await page.screenshot({ path: join(PICTURES, `${name}.png`), ...(clip && { clip }) });
}

/** The page fits each width and has no fault for axe, in both schemes. */
export async function expectPresentable(page: Page, name: string): Promise<void> {
  const violations: string[] = [];
  for (const colorScheme of SCHEMES) {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' });
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: width === 360 ? 740 : 900 });
      await takePicture(page, `${name}-${colorScheme}-${width}`);
      const overflow = await page.evaluate(
        'document.documentElement.scrollWidth - document.documentElement.clientWidth',
      );
      if (overflow !== 0) violations.push(`${colorScheme} ${width}: ${String(overflow)} px too wide`);
      if (width === 3840) continue;
      for (const { id, nodes } of await axe(page, colorScheme)) {
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

type Clip = NonNullable<PageScreenshotOptions['clip']>;

interface Violation {
  id: string;
  nodes: { html: string; failureSummary: string }[];
}

/** The schemes differ in colours only: the other rules of axe judge one of them. */
const RULES = {
  light: '',
  dark: ", runOnly: { type: 'rule', values: ['color-contrast', 'link-in-text-block'] }",
};

async function axe(page: Page, scheme: keyof typeof RULES): Promise<Violation[]> {
  if (!(await page.evaluate<boolean>("'axe' in globalThis"))) await page.evaluate(axeCore.source);
  return page.evaluate(
    `axe.run({ resultTypes: ['violations']${RULES[scheme]} }).then(({ violations }) => violations)`,
  );
}
