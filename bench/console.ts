import { join } from 'node:path';
import { chromium, type BrowserContext, type Page } from 'playwright-core';
import { table } from '../src/cli/table.js';
import { consolePages, type ConsolePage } from './console/pages.js';
import { STOPWATCH, type Opening, type Visit } from './console/stopwatch.js';
import { median } from './median.js';
import { dataSetOf } from './speed/data-set.js';
import { openSide, withOpened, type Side, type SpeedOptions } from './speed/sides.js';

export interface ConsoleOptions extends Pick<SpeedOptions, 'scale' | 'rounds' | 'store'> {
  browser: string;
}

/** Milliseconds that a page may need beyond the answer of the API. */
const TARGET_MS = 100;

/** Prints the time of each page of the console in a browser: on a first visit, and opened from another page. */
export async function consoleTimes({ browser: program, ...options }: ConsoleOptions): Promise<void> {
  const speed = { ...options, seconds: 1, connections: [1], only: [] };
  await withOpened(speed, async (opened, directory) => {
    const dataSet = dataSetOf(options.scale);
    const side = await openSide(opened, join(directory, 'large'), dataSet, 'the store');
    const browser = await chromium.launch({
      executablePath: program,
      args: ['--no-sandbox', '--disable-dev-shm-usage'],
    });
    opened.add(() => browser.close());
    const visit = async () => {
      const context = await browser.newContext({ baseURL: `http://${side.server.host}:${side.server.port}` });
      await signIn(context, side);
      return { context, page: await context.newPage() };
    };
    const pages = await consolePages(side.api);
    const first: string[][] = [];
    const again: string[][] = [];
    for (const page of pages) {
      const visits: Visit[] = [];
      for (let round = 0; round < options.rounds; round += 1) {
        const { context, page: tab } = await visit();
        visits.push(await firstVisit(tab, page));
        await context.close();
      }
      first.push([page.name, ...visitRow(visits)]);
    }
    const { context, page: tab } = await visit();
    for (const page of pages) {
      const openings: Opening[] = [];
      // The first one loads the script of the page.
      for (let round = 0; round <= options.rounds; round += 1) openings.push(await open(tab, page));
      again.push([page.name, ...openingRow(openings.slice(1))]);
    }
    await context.close();
    console.log(
      `Node ${process.versions.node}, Chromium ${browser.version()}, ${dataSet.sandboxes} sandboxes, ${dataSet.events} events, ` +
        `${options.rounds} rounds, medians\n`,
    );
    console.log(table(['FIRST VISIT', 'KB', 'FIRST PAINT ms', 'SHOWN ms', 'BLOCKED ms', 'SHIFT'], first));
    console.log('');
    console.log(
      table(['OPENED FROM ANOTHER PAGE', 'SHOWN ms', 'API ms', `BEYOND IT ms <${TARGET_MS}`], again),
    );
  });
}

async function signIn(context: BrowserContext, { api, server }: Side): Promise<void> {
  const origin = `http://${server.host}:${server.port}`;
  const answer = await context.request.post('/console/session', {
    data: { key: api.key },
    headers: { origin },
  });
  if (answer.status() !== 201) throw new Error(`the sign-in was answered with ${answer.status()}`);
}

/** With an empty cache. The milliseconds count from the navigation. */
async function firstVisit(tab: Page, { path, shows }: ConsolePage): Promise<Visit> {
  await tab.addInitScript(`${STOPWATCH}.begin()`);
  await tab.goto(`/console${path}`, { waitUntil: 'commit' });
  return tab.evaluate<Visit>(`${STOPWATCH}.visit(${JSON.stringify(shows)})`);
}

async function open(tab: Page, { path, shows, asks }: ConsolePage): Promise<Opening> {
  if (tab.url() === 'about:blank') await tab.goto('/console/nowhere');
  return tab.evaluate<Opening>(
    `${STOPWATCH}.open(${[`/console${path}`, shows, asks].map((text) => JSON.stringify(text)).join(', ')})`,
  );
}

function visitRow(visits: readonly Visit[]): string[] {
  const of = (part: keyof Visit) => median(visits.map((visit) => visit[part]));
  return [
    (of('bytes') / 1_000).toFixed(1),
    ...(['firstPaint', 'shown', 'blocked'] as const).map((part) => of(part).toFixed(0)),
    of('shift').toFixed(3),
  ];
}

function openingRow(openings: readonly Opening[]): string[] {
  const beyond = median(openings.map(({ shown, api }) => shown - api));
  const figures = [median(openings.map(({ shown }) => shown)), median(openings.map(({ api }) => api))];
  return [
    ...figures.map((figure) => figure.toFixed(0)),
    `${beyond.toFixed(0)} ${beyond <= TARGET_MS ? '✓' : '✗'}`,
  ];
}
