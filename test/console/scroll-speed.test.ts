import type { Page } from 'playwright-core';
import { expect, test } from 'vitest';
import { connectAlone } from '../../src/db/pool.js';
import { now } from '../../src/lib/instant.js';
import { loadPlenty } from '../support/bulk-rows.js';
import { describeBrowser, signInBrowser } from './browser.js';
import { useConsole } from './use-console.js';

/** A measurement by hand sets it: at most 10,000. `volumes.test.ts` proves the drawing in parts for CI. */
const ROWS = Number(process.env['SANDKEEP_TEST_ROWS'] ?? 0);
/** `loadPlenty` removes one in 25 of the rows that it makes. The sandbox that they are copied from is one more. */
const MADE = Math.floor(((ROWS - 1) * 25) / 24);
const FRAMES = 600;
/** A frame of 60 a second is dropped when the next comes after one and a half of its time. */
const DROPPED_MS = 25;
/** Rows near the screen, and some beyond its edges. */
const MOST_DRAWN = 160;
/** Metrics of Chromium. */
const WORK = ['ScriptDuration', 'RecalcStyleDuration', 'LayoutDuration'];
const OTHER = ['TaskOtherDuration'];

interface Frames {
  dropped: number;
  longest: number;
  /** Milliseconds of scripts, styles and layout for a frame. */
  work: number;
  /** Those of everything else in the thread of the page, most of it painting. */
  painting: number;
  /** The most rows in the document. */
  drawn: number;
}

/** Scrolls by 300 px a frame, down and up. */
async function scroll(page: Page): Promise<Frames> {
  const session = await page.context().newCDPSession(page);
  await session.send('Performance.enable');
  const secondsOf = async (names: readonly string[]) => {
    const { metrics } = await session.send('Performance.getMetrics');
    return metrics.reduce((sum, { name, value }) => (names.includes(name) ? sum + value : sum), 0);
  };
  const before = { work: await secondsOf(WORK), painting: await secondsOf(OTHER) };
  const measured = await page.evaluate<Omit<Frames, 'work' | 'painting'>>(`new Promise((done) => {
    let last = performance.now(), frames = 0, dropped = 0, longest = 0, drawn = 0, step = 300;
    const frame = (now) => {
      const gap = now - last;
      last = now;
      frames += 1;
      if (gap > ${DROPPED_MS}) dropped += 1;
      longest = Math.max(longest, gap);
      drawn = Math.max(drawn, document.querySelectorAll('tbody tr:not(.gap)').length);
      const { scrollTop, scrollHeight, clientHeight } = document.documentElement;
      if (scrollTop + step < 0 || scrollTop + step > scrollHeight - clientHeight) step = -step;
      scrollBy(0, step);
      if (frames < ${FRAMES}) requestAnimationFrame(frame);
      else done({ dropped, longest, drawn });
    };
    requestAnimationFrame(frame);
  })`);
  const perFrame = (seconds: number) => (seconds * 1000) / FRAMES;
  const work = perFrame((await secondsOf(WORK)) - before.work);
  const painting = perFrame((await secondsOf(OTHER)) - before.painting);
  await session.detach();
  return { ...measured, work, painting };
}

function report(table: string, { dropped, longest, work, painting, drawn }: Frames): void {
  console.log(
    `${table}: ${dropped} of ${FRAMES} frames dropped, the longest ${longest.toFixed(0)} ms; ` +
      `a frame has ${work.toFixed(1)} ms of scripts, styles and layout, and ${painting.toFixed(1)} ms of painting; at most ${drawn} rows in the document`,
  );
}

describeBrowser('a long table of sandboxes', () => {
  const its = useConsole();

  test.runIf(ROWS > 0)(
    'has the rows near the screen in the document, while it is scrolled and rows change',
    async () => {
      const { client, service } = its;
      const { page } = its.visitor;
      await client.post('/v1/sandboxes', { name: 'first', image: { type: 'oci', reference: 'python:3.12' } });
      const session = await connectAlone(service.database);
      await loadPlenty(session, client.org.id, {
        sandboxes: MADE,
        runs: 1,
        events: 0,
        until: now(),
        days: 30,
      });
      await session.end();
      await signInBrowser(page, client.key, '/console/sandboxes?show=all');
      await page
        .getByRole('status')
        .getByText(`${ROWS.toLocaleString('en')} sandboxes`)
        .waitFor();
      report('the table', await scroll(page));

      const { body } = await client.get('/v1/sandboxes', { status: 'created', limit: 100 });
      const changing = (body.data as { id: string }[]).map(({ id }) => id);
      const over = new AbortController();
      const changes = (async () => {
        for (let round = 0; !over.signal.aborted; round += 1) {
          const id = changing[round % changing.length]!;
          await client.patch(`/v1/sandboxes/${id}`, { labels: { round: String(round) } });
        }
      })();
      const frames = await scroll(page);
      over.abort();
      await changes;
      report('the table while rows change', frames);
      expect(frames.drawn).toBeGreaterThan(0);
      expect(frames.drawn).toBeLessThan(MOST_DRAWN);
      expect(await page.getByRole('table').getAttribute('aria-rowcount')).toBe(String(ROWS + 1));

      // The same rows without the drawing in parts, for comparison.
      await page.evaluate(`(() => {
      const body = document.querySelector('tbody');
      const row = body.querySelector('tr:not(.gap)');
      body.replaceChildren(...Array.from({ length: ${ROWS} }, () => row.cloneNode(true)));
    })()`);
      const plain = await page.evaluate<string>("document.querySelector('main').outerHTML");
      const styles = await page.evaluate<string>(
        "[...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).map((rule) => rule.cssText).join('')",
      );
      const other = await page.context().newPage();
      await other.setContent(`<!doctype html><style>${styles}</style>${plain}`);
      report('a plain table of as many rows', await scroll(other));
    },
  );
});
