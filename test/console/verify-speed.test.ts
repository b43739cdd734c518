import { once } from 'node:events';
import { createReadStream, createWriteStream } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import type { Browser } from 'playwright-core';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { genesisLink, leafOf, linkOf } from '../../src/audit/events/hash-chain.js';
import { signCheckpoint } from '../../src/audit/log/checkpoint.js';
import { formatExportLine } from '../../src/audit/verify/export-line.js';
import { startTestService, type TestService } from '../support/service.js';
import { describeBrowser, launch, newVisitor, signInBrowser } from './browser.js';

const EVENTS = Number(process.env['SANDKEEP_TEST_EVENTS'] ?? 20_000);
const CHECKPOINT_EVERY = 1000;
/** A verification of a million events, or one on a busy machine, takes minutes. */
const WAIT_MS = 600_000;

describeBrowser('the verification of a long log in a browser', () => {
  let service: TestService;
  let browser: Browser;
  let exports: Server;

  beforeAll(async () => {
    service = await startTestService();
    browser = await launch();
  });
  afterAll(async () => {
    exports.close();
    await browser.close();
    await service.close();
  });

  const fileOf = (path: string) => join(service.directory, `export-${path.slice(1)}`);

  function* longExport(orgId: string, fault?: number): Generator<string> {
    const keys = service.ctx.eventKeys();
    const at = '2026-11-24T10:00:00.000000Z';
    const sign = (seq: number, link: Buffer) =>
      signCheckpoint(keys, { org_id: orgId, seq, link, at, marked_from: 1 });
    const entryOf = (seq: number) => {
      const id = `019a0000-0000-7000-8000-${String(seq).padStart(12, '0')}`;
      const payload = {
        sandbox_id: id,
        name: `sandbox-${seq}`,
        previous_status: 'starting',
        status: 'running',
        run_id: id,
      };
      const actor = { kind: 'api_key' as const, api_key_id: id, name: 'deploy' };
      const event = {
        org_id: orgId,
        id,
        occurred_at: at,
        category: 'sandbox',
        event_type: 'sandbox_started',
        actor,
        payload,
        resource_id: id,
      };
      return { seq, event_id: id, occurred_at: at, leaf: leafOf(event), unmarked: false, event };
    };
    let link = genesisLink(orgId);
    for (let seq = 1; seq <= EVENTS; seq += 1) link = linkOf(link, entryOf(seq));
    const end = sign(EVENTS, link);
    link = genesisLink(orgId);
    yield formatExportLine({ begin: { org_id: orgId, seq: 0, link } }) + formatExportLine({ end });
    for (let seq = 1; seq <= EVENTS; seq += 1) {
      const entry = entryOf(seq);
      link = linkOf(link, entry);
      const text = formatExportLine({ entry: { ...entry, link } });
      yield seq === fault ? text.replace('"deploy"', '"deplox"') : text;
      if (seq % CHECKPOINT_EVERY === 0 && seq < EVENTS)
        yield formatExportLine({ checkpoint: sign(seq, link) });
    }
    yield formatExportLine({ checkpoint: end });
  }

  test('finishes, keeps the page responsive, and finds a fault near the end', async () => {
    const client = await service.newOrg();
    const { page, faults } = await newVisitor(browser, service.url);
    const files = { '/good': undefined, '/faulty': EVENTS - 10 };
    for (const [path, fault] of Object.entries(files)) {
      await pipeline(longExport(client.org.id, fault), createWriteStream(fileOf(path)));
    }
    exports = createServer((request, response) => {
      createReadStream(fileOf(request.url!)).pipe(response);
    }).listen(0, '127.0.0.1');
    await once(exports, 'listening');
    const { port } = exports.address() as AddressInfo;
    let path = '/good';
    await page.route('**/v1/events/export?*', (route) =>
      route.continue({ url: `http://127.0.0.1:${port}${path}` }),
    );
    await signInBrowser(page, client.key, '/console/audit?verify=open');
    await page
      .getByLabel('Public keys (optional)')
      .fill(service.ctx.eventKeys().current.bytes.toString('base64'));
    await page.evaluate(`globalThis.longest = 0; let last = performance.now();
      setInterval(() => { const now = performance.now(); longest = Math.max(longest, now - last); last = now; }, 10);`);
    const verify = page.getByRole('button', { name: 'Verify the chain' });
    await verify.click();
    const result = page.getByRole('region', { name: 'Verification' }).getByRole('status');
    await result.waitFor({ timeout: WAIT_MS });
    const text = (await result.textContent())!;
    expect(text).toContain(`In order: ${EVENTS.toLocaleString('en')} entries`);
    const speed = /([\d,]+) entries a second, [\d.]+ s/.exec(text);
    const longest = Math.round(await page.evaluate<number>('longest'));
    console.log(
      `Chromium verified ${EVENTS} events: ${speed?.[0]}; the page paused for at most ${longest} ms`,
    );
    path = '/faulty';
    await verify.click();
    const alert = page.getByRole('region', { name: 'Verification' }).getByRole('alert');
    await alert.waitFor({ timeout: WAIT_MS });
    expect(await alert.textContent()).toContain(`Entry ${EVENTS - 10} (event `);
    expect(faults).toEqual([]);
    // Longer than both verifications may take.
  }, 1_500_000);
});
