import fc from 'fast-check';
import { spawn } from 'node:child_process';
import stringWidth from 'string-width';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { fitTable } from '../../src/cli/table-fit.js';
import { PROGRAM, run, runJson, urlOf, UUID } from '../support/cli.js';
import { startTestService, type TestService } from '../support/service.js';

let service: TestService;
let url: string;

beforeAll(async () => {
  service = await startTestService({ worker: false });
  url = urlOf(service.database);
});
afterAll(() => service.close());

/** The lines that a command prints on a terminal of this width. */
async function onTerminal(columns: number, ...args: string[]): Promise<string[]> {
  const words = [...PROGRAM, ...args, '--database-url', url].map((word) => `'${word}'`).join(' ');
  const child = spawn('script', ['-qec', `stty cols ${columns}; ${words}`, '/dev/null'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let out = '';
  child.stdout.on('data', (chunk: Buffer) => (out += chunk.toString()));
  const code = await new Promise((resolve, reject) => child.once('error', reject).once('close', resolve));
  expect({ code, out }).toMatchObject({ code: 0 });
  return out.trimEnd().split('\r\n');
}

describe('a table on a terminal', () => {
  let slug: string;
  let id: string;
  beforeAll(async () => {
    ({ slug } = (await service.newOrg()).org);
    const name = 'a key whose name is long enough to fill a line: 日本語 is two cells each';
    ({ id } = await runJson(['key', 'create', '--org', slug, '--name', name, '--database-url', url]));
  });

  test('is never wider than the terminal, and names the option for all columns', async () => {
    for (const columns of [40, 80, 132]) {
      for (const args of [
        ['key', 'list', '--org', slug],
        ['worker', 'list'],
        ['org', 'list'],
      ]) {
        const lines = await onTerminal(columns, ...args);
        for (const line of lines) expect(stringWidth(line)).toBeLessThanOrEqual(columns);
      }
      const keys = await onTerminal(columns, 'key', 'list', '--org', slug);
      expect(keys.at(-1)).toContain('--wide');
      // The heading, two keys, an empty line and the hint.
      expect(keys).toHaveLength(5);
    }
    const at80 = await onTerminal(80, 'key', 'list', '--org', slug);
    expect(at80.join('\n')).toContain(`…${id.slice(-8)}`);
    expect(at80[0]).not.toContain('SCOPES');
  });

  test('is complete with --wide, and when nothing needs shortening', async () => {
    const text = (await run(['key', 'list', '--org', slug], { env: { DATABASE_URL: url } })).out.trimEnd();
    expect((await onTerminal(80, 'key', 'list', '--org', slug, '--wide')).join('\n')).toBe(text);
    expect((await onTerminal(400, 'key', 'list', '--org', slug)).join('\n')).toBe(text);
  });

  test('is complete when the output is not a terminal', async () => {
    const env = { DATABASE_URL: url, COLUMNS: '40' };
    const { out } = await run(['key', 'list', '--org', slug], { env });
    expect(out).toContain(id);
    expect(out).toContain('日本語 is two cells each');
    expect(out).toMatch(/T\d\d:\d\d:\d\d\.\d+Z/);
  });
});

describe('fitting a table', () => {
  const ID = '0190e5a0-0000-7000-8000-0123456789ab';
  const grid = {
    head: ['NAME', 'ID', 'SIZE', 'CREATED'],
    rows: [['a', ID, '12', '2026-11-23T04:53:28.123456Z']],
  };
  const fit = (columns: number, whole = grid) =>
    fitTable(whole, { columns, optional: ['SIZE'], gap: 3, widthOf: stringWidth });

  test('shortens times, then ids, then omits columns, then cuts the widest values', () => {
    expect(ID).toMatch(UUID);
    const time = '2026-11-23T04:53:28Z';
    expect(fit(100)).toMatchObject({ ...grid, shortened: false });
    expect(fit(75).rows).toEqual([['a', ID, '12', time]]);
    expect(fit(60).rows).toEqual([['a', '…456789ab', '12', time]]);
    expect(fit(40)).toMatchObject({ head: ['NAME', 'ID', 'CREATED'], widths: [4, 9, 20], shortened: true });
    expect(fit(30).widths).toEqual([4, 9, 11]);
  });

  test('fits every table into every width', () => {
    const cell = fc.string({ unit: 'grapheme', maxLength: 40 });
    const tables = fc.integer({ min: 1, max: 8 }).chain((count) =>
      fc.record({
        head: fc.array(cell, { minLength: count, maxLength: count }),
        rows: fc.array(fc.array(cell, { minLength: count, maxLength: count }), { maxLength: 4 }),
      }),
    );
    fc.assert(
      fc.property(tables, fc.integer({ min: 1, max: 120 }), (whole, columns) => {
        const { widths, head } = fit(columns, whole);
        expect(widths).toHaveLength(head.length);
        const total = widths.reduce((sum, width) => sum + width, 3 * (widths.length - 1));
        expect(total).toBeLessThanOrEqual(columns);
      }),
    );
  });
});
