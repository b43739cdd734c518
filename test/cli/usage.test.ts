import { parse } from 'csv-parse/sync';
import { spawnSync } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { expectRefused, PROGRAM, run, runJson, urlOf } from '../support/cli.js';
import type { Client } from '../support/client.js';
import { startTestService, type TestService } from '../support/service.js';
import { smallRequest } from '../support/sandbox-requests.js';

const RANGE = ['--since', '2026-03-01', '--until', '2026-04-01'];

let service: TestService;
let client: Client;
let args: string[];
beforeAll(async () => {
  service = await startTestService({ worker: false });
  client = await service.newOrg();
  args = ['usage', '--database-url', urlOf(service.database), '--org', client.org.slug];
  for (const [name, vcpus, hours] of [
    ['small', 1, 1],
    ['large', 4, 30],
  ] as const) {
    const { body } = await client.post('/v1/sandboxes', smallRequest(name));
    await service.ctx.pool.query(
      `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
       values ($1, $2, $3, $4, 512, 0, '2026-03-01T12:00:00Z', '2026-03-01T12:00:00Z'::timestamptz + make_interval(hours => $5), 'test')`,
      [client.org.id, uuidv7(), body.id, vcpus, hours],
    );
  }
});
afterAll(() => service.close());

test('usage shows the largest users first, the total, and a bar for each day', async () => {
  const { code, out, err } = await run([...args, ...RANGE]);
  expect({ code, err }).toEqual({ code: 0, err: '' });
  expect(out.split('\n')).toEqual([
    'SANDBOX   vCPU HOURS   GiB HOURS MEMORY   GiB HOURS DISK',
    'large         120.00              15.00             0.00',
    'small           1.00               0.50             0.00',
    'all           121.00              15.50             0.00',
    '',
    'DAY          GiB HOURS STORAGE   vCPU HOURS',
    `2026-03-01                0.00        49.00   ${'█'.repeat(27)}`,
    `2026-03-02                0.00        72.00   ${'█'.repeat(40)}`,
    '',
  ]);
});

test('usage --json and --csv print the answers of the API', async () => {
  const query = { since: '2026-03-01', until: '2026-04-01' };
  expect(await runJson([...args, ...RANGE])).toEqual(
    (await client.get('/v1/billing/usage/sandbox', query)).body,
  );
  const search = new URLSearchParams(query).toString();
  const response = await fetch(`${service.url}/v1/billing/usage/sandbox?${search}`, {
    headers: { authorization: `Bearer ${client.key}`, accept: 'text/csv' },
  });
  expect((await run([...args, ...RANGE, '--csv'])).out).toBe(await response.text());
});

test('usage --format focus prints the charges of sandboxes and volumes, and needs prices', async () => {
  const book = join(mkdtempSync(join(tmpdir(), 'sandkeep-book-')), 'prices.json');
  writeFileSync(
    book,
    JSON.stringify({ currency: 'EUR', prices: { vcpu_hour: '0.05', storage_gib_hour: '1' } }),
  );
  const volume = (await client.get('/v1/volumes/default')).body.id;
  await service.ctx.pool.query(
    `insert into accruals (org_id, volume_id, from_at, to_at, used_mib)
     values ($1, $2, '2026-03-05T00:00:00Z', '2026-03-05T02:00:00Z', 512)`,
    [client.org.id, volume],
  );
  const focus = [...args, ...RANGE, '--format', 'focus'];
  const { code, out, err } = await run([...focus, '--price-book', book]);
  expect({ code, err }).toEqual({ code: 0, err: '' });
  const rows: Record<string, string>[] = parse(out, { columns: true });
  const billed = (sku: string) =>
    rows.filter(({ SkuId }) => SkuId === sku).reduce((sum, { BilledCost }) => sum + Number(BilledCost), 0);
  expect([billed('vcpu_hour'), billed('storage_gib_hour')].map((sum) => sum.toFixed(4))).toEqual([
    '6.0500',
    '1.0000',
  ]);
  expectRefused(await run(focus), '--price-book');
  expectRefused(await run([...focus, '--csv']), 'choose one of --json, --csv and --format');
  expectRefused(await run([...args, '--format', 'parquet']), 'json, csv, focus');
  await service.ctx.pool.query('delete from accruals where org_id = $1', [client.org.id]);
});

test('usage has the cost of sandboxes, of labels and of days, with included hours', async () => {
  const book = join(mkdtempSync(join(tmpdir(), 'sandkeep-book-')), 'prices.json');
  const prices = { vcpu_hour: '0.05', memory_gib_hour: '0.01', storage_gib_hour: '1' };
  // The hours that are included end on the first day, after half of its use.
  writeFileSync(book, JSON.stringify({ currency: 'EUR', prices, included: { vcpu_hour: '24.5' } }));
  const team = await service.newOrg();
  for (const [name, vcpus, hours, labels] of [
    ['small', 1, 1, { env: 'prod' }],
    ['large', 4, 30, { team: 'ml', env: 'prod' }],
    ['loose', 0, 1, {}],
  ] as const) {
    const { body } = await team.post('/v1/sandboxes', { ...smallRequest(name), labels });
    await service.ctx.pool.query(
      `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
       values ($1, $2, $3, $4, 512, 0, '2026-03-01T12:00:00Z', '2026-03-01T12:00:00Z'::timestamptz + make_interval(hours => $5), 'test')`,
      [team.org.id, uuidv7(), body.id, vcpus, hours],
    );
  }
  const { body: volume } = await team.get('/v1/volumes/default');
  await service.ctx.pool.query(
    `insert into accruals (org_id, volume_id, from_at, to_at, used_mib)
     values ($1, $2, '2026-03-02T00:00:00Z', '2026-03-02T02:00:00Z', 512)`,
    [team.org.id, volume.id],
  );
  const shown = ['usage', '--database-url', urlOf(service.database), '--org', team.org.slug, ...RANGE];
  const costs = [...shown, '--price-book', book];
  const { code, out, err } = await run(costs);
  expect({ code, err }).toEqual({ code: 0, err: '' });
  const days = [
    '',
    'DAY          GiB HOURS STORAGE   vCPU HOURS   COST EUR',
    `2026-03-01                0.00        49.00       1.30   ${'█'.repeat(27)}`,
    `2026-03-02                1.00        72.00       4.69   ${'█'.repeat(40)}`,
    '',
  ];
  expect(out.split('\n')).toEqual([
    'SANDBOX   vCPU HOURS   GiB HOURS MEMORY   GiB HOURS DISK   COST EUR',
    'large         120.00              15.00             0.00       4.95',
    'small           1.00               0.50             0.00       0.03',
    'loose           0.00               0.50             0.00       0.01',
    'all           121.00              16.00             0.00       4.99',
    ...days,
  ]);
  expect((await run([...costs, '--by', 'team,env'])).out.split('\n')).toEqual([
    'team     env      vCPU HOURS   GiB HOURS MEMORY   GiB HOURS DISK   COST EUR',
    'ml       prod         120.00              15.00             0.00       4.95',
    '(none)   prod           1.00               0.50             0.00       0.03',
    '(none)   (none)         0.00               0.50             0.00       0.01',
    'all                   121.00              16.00             0.00       4.99',
    ...days,
  ]);
  const report = await runJson([...costs, '--by', 'team']);
  expect([report.currency, report.rows.map((row: any) => row.cost)]).toEqual(['EUR', ['1.26', '3.69']]);
  expect(await runJson([...shown, '--by', 'team,env'])).toEqual(
    (
      await team.get('/v1/billing/usage/labels', {
        key: ['team', 'env'],
        since: '2026-03-01',
        until: '2026-04-01',
      })
    ).body,
  );
  expect((await run([...costs, '--by', 'team', '--csv'])).out).toMatch(/,cost,currency\r\n.*,1\.26,EUR\r\n/);
  expectRefused(await run([...costs, '--by', 'team', '--format', 'focus']), 'exclude each other');
  expectRefused(await run([...shown, '--by', 'team,']), 'such as team,env');
  expectRefused(await run([...shown, '--by', 'team,team']), '--by names a label twice');
  expectRefused(await run([...shown, '--by', 'a,b,c,d,e']), 'at most 4 labels');
  expectRefused(await run([...shown, '--price-book', `${book}.none`]), 'the price book');
});

test('usage explains an empty result, and names a wrong argument', async () => {
  expect((await run([...args, '--since', '2025-01-01', '--until', '2025-02-01'])).out).toBe('no usage\n');
  expectRefused(await run([...args, '--since', 'yesterday']), 'since must be an RFC 3339 date-time');
  expectRefused(await run([...args, '--since', '2026-02-01', '--until', '2026-01-01']), 'must be before');
  expectRefused(await run([...args, '--json', '--csv']), 'choose one');
});

test('usage escapes names that would control the terminal, and cuts none without a terminal', async () => {
  const { pool } = service.ctx;
  const org = await service.newOrg();
  const { body } = await org.post('/v1/sandboxes', smallRequest('plain'));
  await pool.query(
    `insert into runs (org_id, id, sandbox_id, vcpus, memory_mib, disk_mib, started_at, stopped_at, end_reason)
     values ($1, $2, $3, 1, 512, 0, '2026-03-01T00:00:00Z', '2026-03-01T01:00:00Z', 'test')`,
    [org.org.id, uuidv7(), body.id],
  );
  const name = `\u001b[2Jall 0.00\n${'x'.repeat(400)}`;
  await pool.query('update sandboxes set name = $2 where id = $1', [body.id, name]);
  const shown = ['usage', '--database-url', urlOf(service.database), '--org', org.org.slug, ...RANGE];
  const [, first] = (await run(shown)).out.split('\n');
  expect(first).toMatch(/^\\u001b\[2Jall 0\.00\\u000ax{400}  +1\.00/);
});

test('usage exits silently when its reader closes the pipe, and reports a failed write', async () => {
  const command = (to: string) => `"$0" "$@" --csv ${to}`;
  const sh = (to: string) =>
    spawnSync('bash', ['-o', 'pipefail', '-c', command(to), ...PROGRAM, ...args, ...RANGE], {
      encoding: 'utf8',
    });
  const enough = sh('| true');
  expect([enough.status, enough.stderr]).toEqual([0, '']);
  const full = sh('>/dev/full');
  expect([full.status, full.stderr]).toEqual([
    1,
    expect.stringMatching(/^sandkeep: cannot write the output: .*\n$/),
  ]);
});
