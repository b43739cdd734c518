import { parse } from 'csv-parse/sync';
import { readFileSync } from 'node:fs';
import type { Page } from 'playwright-core';
import { v7 as uuidv7 } from 'uuid';
import { expect, test } from 'vitest';
import { parsePriceBook } from '../../src/prices/price-book.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { describeBrowser, expectPresentable, signInBrowser, takePicture } from './browser.js';
import { useConsole } from './use-console.js';

const BOOK = JSON.stringify({
  currency: 'EUR',
  prices: { vcpu_hour: '450', memory_gib_hour: '0.01', disk_gib_hour: '0', storage_gib_hour: '0' },
});
const OCTOBER = 'since=2026-10-01&until=2026-11-01';
const HOSTILE = '=1+1';

describeBrowser('the page Usage', () => {
  const its = useConsole({ settings: { priceBook: parsePriceBook(BOOK, 'book.json') } });

  async function ran(name: string, from: string, to: string, labels: Record<string, string> = {}) {
    const { client, service } = its;
    const { body } = await client.post('/v1/sandboxes', { ...smallRequest(name), labels });
    await service.ctx.pool.query(
      `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
       values ($1, $2, $3, 2, 1024, 0, $4, $5, 'test')`,
      [client.org.id, uuidv7(), body.id, from, to],
    );
    return (body as { id: string }).id;
  }

  const tableOf = async (page: Page, name: string) => {
    const region = page.getByRole('region', { name });
    await region.waitFor();
    const rows = await region.getByRole('row').all();
    return Promise.all(rows.map(async (row) => row.locator('th, td').allTextContents()));
  };

  const download = async (page: Page, name: string) => {
    const downloading = page.waitForEvent('download');
    await page.getByRole('button', { name }).click();
    return parse(readFileSync(await (await downloading).path(), 'utf8'));
  };

  test('days are UTC days in any time zone, and the picture, the table and the CSV have the same figures', async () => {
    const { client } = its;
    const { page } = its.visitor;
    // 23:00 to 01:30 UTC, which is one day in Kolkata.
    await ran('night', '2026-10-09T23:00:00Z', '2026-10-10T01:30:00Z', { team: HOSTILE });
    await ran('day', '2026-10-10T10:00:00Z', '2026-10-10T14:00:00Z', { team: 'ml' });
    await ran('loose', '2026-10-12T10:00:00Z', '2026-10-12T10:30:00Z');
    const cdp = await page.context().newCDPSession(page);
    await cdp.send('Emulation.setTimezoneOverride', { timezoneId: 'Asia/Kolkata' });
    await signInBrowser(page, client.key, `/console/usage?${OCTOBER}`);
    const table = await tableOf(page, 'CPU in vCPU-hours, by day');
    expect(table[0]).toEqual(['UTC day', 'day', 'night', 'loose', 'Sum']);
    expect(table.length).toBe(32);
    const of = (day: string) =>
      table
        .find(([first]) => first === day)!
        .slice(1)
        .map(Number);
    expect(of('2026-10-09')).toEqual([0, 2, 0, 2]);
    expect(of('2026-10-10')).toEqual([8, 3, 0, 11]);
    expect(of('2026-10-12')).toEqual([0, 0, 1, 1]);
    const csv = await download(page, 'Download these days as CSV');
    expect(csv.map((row) => row[0])).toEqual(table.map((row) => row[0]));
    expect(csv.slice(1).map((row) => row.slice(1).map(Number))).toEqual(
      table.slice(1).map((row) => row.slice(1).map(Number)),
    );
    const chart = page.getByRole('img', { name: /CPU in vCPU-hours, by day/ });
    await chart.locator('canvas').waitFor();
    await expectPresentable(page, 'usage');

    await page.getByLabel('By label').fill('team');
    await page.keyboard.press('Enter');
    const sums = await tableOf(page, 'Sums by value of team');
    expect(sums.slice(1)).toEqual([
      ['ml', '8.000', '€3,600.04'],
      // 2,250.025 is rounded half up, although the sum of its days in binary fractions can be less.
      [HOSTILE, '5.000', '€2,250.03'],
      ['without team', '1.000', '€450.01'],
    ]);
    const written = await download(page, 'Download these sums as CSV');
    expect(written).toEqual([
      ['value of team', 'vCPU-hours', 'Cost, EUR'],
      ['ml', '8', '3600.04'],
      [`'${HOSTILE}`, '5', '2250.025'],
      ['without team', '1', '450.005'],
    ]);
    await page.getByRole('button', { name: /^2 =1\+1/ }).click();
    await expect
      .poll(async () => (await tableOf(page, 'CPU in vCPU-hours, by day'))[0])
      .toEqual(['UTC day', HOSTILE, 'Sum']);
    expect(new URL(page.url()).searchParams.get('only')).toBe(HOSTILE);
    await page.getByRole('button', { name: 'Memory' }).click();
    const memory = await tableOf(page, 'Memory in GiB-hours, by day');
    expect(memory[0]).toEqual(['UTC day', 'ml', HOSTILE, 'without team', 'Sum']);
    await expectPresentable(page, 'usage-by-label');
  });

  test('several labels have the cost of each combination, by day and in sum', async () => {
    const { client } = its;
    const { page } = its.visitor;
    const team = { team: 'ml', env: 'prod' };
    await ran('both', '2026-10-10T10:00:00Z', '2026-10-10T14:00:00Z', team);
    await ran('half', '2026-10-11T10:00:00Z', '2026-10-11T12:00:00Z', { team: 'ml', 'a,b': '' });
    await ran('none', '2026-10-12T10:00:00Z', '2026-10-12T10:30:00Z');
    await signInBrowser(page, client.key, `/console/usage?${OCTOBER}`);
    await page.getByRole('table').first().waitFor();
    expect(await page.getByRole('button', { name: 'Cost' }).count()).toBe(0);
    await page.getByLabel('By label').fill('team, env');
    await page.keyboard.press('Enter');
    await page.getByRole('button', { name: 'Cost' }).click();
    const days = await tableOf(page, 'Cost in EUR, by day');
    expect(days[0]).toEqual([
      'UTC day',
      'ml · prod',
      'ml · without env',
      'without team · without env',
      'Sum',
    ]);
    expect(days.find(([day]) => day === '2026-10-10')!.slice(1)).toEqual([
      '€3,600.04',
      '€0.00',
      '€0.00',
      '€3,600.04',
    ]);
    expect((await tableOf(page, 'Sums by value of team and env')).slice(1)).toEqual([
      ['ml · prod', '€3,600.04'],
      ['ml · without env', '€1,800.02'],
      ['without team · without env', '€450.01'],
    ]);
    expect(await download(page, 'Download these sums as CSV')).toEqual([
      ['value of team and env', 'EUR'],
      ['ml · prod', '3600.04'],
      ['ml · without env', '1800.02'],
      ['without team · without env', '450.005'],
    ]);
    const found = await page.getByRole('link', { name: 'ml · prod' }).getAttribute('href');
    expect(JSON.parse(new URL(found!, page.url()).searchParams.get('labels')!)).toEqual(team);
    await page.locator('canvas').waitFor();
    await expectPresentable(page, 'usage-cost-by-labels');

    await page.getByLabel('By label').fill('"a,b"');
    await page.keyboard.press('Enter');
    expect((await tableOf(page, 'Sums by value of a,b')).slice(1)).toEqual([
      ['without a,b', '€4,050.05'],
      ['(empty)', '€1,800.02'],
    ]);
    await page.getByLabel('By label').fill('a, b, c, d, e');
    await page.keyboard.press('Enter');
    await page
      .getByRole('alert')
      .getByText(/key .*4/i)
      .waitFor();
  });

  test('the month has the cost of the API, and a sandbox its part of it', async () => {
    const { client } = its;
    const { page } = its.visitor;
    const month = new Date().toISOString().slice(0, 7);
    // The first seconds of a month that has just begun are not over.
    const [from, to] = [`${month}-01T00:00:00Z`, `${month}-01T00:00:02Z`];
    await ran('other', from, to);
    const id = await ran('own', from, to);
    await signInBrowser(page, client.key, '/console/usage');
    const { body } = await client.get('/v1/billing/usage', { month });
    const shown = await tableOf(page, `Use and cost of ${month}`);
    expect(shown.slice(1).map((row) => [Number(row[1]!.replaceAll(',', '')), row.at(-1)])).toEqual(
      body.line_items.map(({ quantity, amount_cents }: { quantity: number; amount_cents: number }) => [
        Number(quantity.toFixed(3)),
        `€${(amount_cents / 100).toFixed(2)}`,
      ]),
    );
    await page.goto(`/console/sandboxes/${id}/usage`);
    const half =
      body.line_items.reduce((sum: number, item: { amount_cents: number }) => sum + item.amount_cents, 0) / 2;
    await page.getByText(`Its part of the cost of ${month}: €${(half / 100).toFixed(2)}`).waitFor();
  });

  test('more than eight sandboxes are the largest eight and the others', async () => {
    const { client } = its;
    const { page } = its.visitor;
    for (let hour = 1; hour <= 10; hour += 1) {
      await ran(`box-${hour}`, '2026-10-05T00:00:00Z', `2026-10-05T${String(hour).padStart(2, '0')}:00:00Z`);
    }
    await signInBrowser(page, client.key, `/console/usage?${OCTOBER}`);
    const [head, ...days] = await tableOf(page, 'CPU in vCPU-hours, by day');
    expect(head!.slice(1)).toEqual([
      ...[10, 9, 8, 7, 6, 5, 4, 3].map((hour) => `box-${hour}`),
      '2 others',
      'Sum',
    ]);
    const fifth = days.find(([day]) => day === '2026-10-05')!;
    expect(fifth.slice(1).map(Number)).toEqual([20, 18, 16, 14, 12, 10, 8, 6, 6, 110]);
    await expectPresentable(page, 'usage-others');
  });

  test('a month of teams has the sums of their runs', async () => {
    const { client } = its;
    const { page } = its.visitor;
    const sums = new Map<string, number>();
    for (const [place, team] of ['research', 'web', 'data', 'evals'].entries()) {
      let hours = 0;
      for (let day = 1; day <= 30; day += 1) {
        const date = new Date(Date.UTC(2026, 9, day));
        const isWeekend = [0, 6].includes(date.getUTCDay());
        const length = isWeekend ? place : 1 + ((day * (place + 3) + place * 5) % (13 - 2 * place));
        if (length === 0) continue;
        const begin = date.toISOString().slice(0, 11);
        await ran(
          `${team}-${day}`,
          `${begin}00:00:00Z`,
          `${begin}${String(length).padStart(2, '0')}:00:00Z`,
          {
            team,
          },
        );
        hours += 2 * length;
      }
      sums.set(team, hours);
    }
    await signInBrowser(page, client.key, `/console/usage?${OCTOBER}&label=team`);
    const table = await tableOf(page, 'Sums by value of team');
    const euros = new Intl.NumberFormat('en', { style: 'currency', currency: 'EUR' });
    const expected = [...sums]
      .toSorted(([, a], [, b]) => b - a)
      .map(([team, hours]) => [team, hours.toFixed(3), euros.format(450 * hours + 0.01 * (hours / 2))]);
    expect(table.slice(1)).toEqual(expected);
    await page.locator('canvas').waitFor();
    await page.emulateMedia({ reducedMotion: 'reduce' });
    await page.setViewportSize({ width: 1280, height: 850 });
    const clip = { x: 0, y: 360, width: 1280, height: 460 };
    await takePicture(page, 'console-usage', clip);
  });

  test('a window without usage, and one that the API refuses, say what to do', async () => {
    const { client } = its;
    const { page } = its.visitor;
    await signInBrowser(page, client.key, `/console/usage?${OCTOBER}`);
    await page.getByRole('heading', { name: 'No usage in these days' }).waitFor();
    await expectPresentable(page, 'usage-empty');
    await page.goto('/console/usage?since=2020-01-01&until=2026-11-01');
    await page
      .getByRole('alert')
      .getByText(/366 days/)
      .waitFor();
    await page.getByRole('button', { name: 'Last month' }).click();
    await page.getByRole('alert').waitFor({ state: 'detached' });
    expect(new URL(page.url()).searchParams.get('since')).toMatch(/^\d{4}-\d\d-01$/);
  });
});
