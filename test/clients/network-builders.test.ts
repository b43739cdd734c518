import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Client } from '../support/client.js';
import { runRow, whyMissing } from '../support/clients.js';
import { startTestService, type TestService } from '../support/service.js';
import { NETWORK_PROGRAMS } from './network-programs.js';

let service: TestService;
let client: Client;
let home: string;
beforeAll(async () => {
  service = await startTestService({ simulated: { startMs: 0, stopMs: 0 } });
  client = await service.newOrg();
  home = mkdtempSync(join(tmpdir(), 'sandkeep-clients-'));
});
afterAll(async () => {
  await service?.close();
  rmSync(home, { recursive: true });
});

const env = () => ({
  MSB_BACKEND: 'cloud',
  MSB_API_URL: service.url,
  MSB_API_KEY: client.key,
  HOME: home,
});

for (const [index, { title, client: sdk, run, stored }] of NETWORK_PROGRAMS.entries()) {
  const reason = whyMissing(sdk);
  if (reason !== undefined) test.skip(`${title} — SKIPPED: ${reason}`);
  else {
    test.concurrent(`${title} is stored as it was asked for`, async () => {
      const name = `network-${index}`;
      const result = await runRow({ client: sdk, run: run.replace('NAME', name) }, env());
      expect(result).toEqual({ exit: 0, text: '' });
      const { body, text } = await client.get(`/v1/sandboxes/by-name/${name}`);
      const { strict, ...shown } = stored;
      expect(body.spec.network).toMatchObject(shown);
      expect(text).not.toContain('sk-value');
      // Answers lack `strict`.
      const { rows } = await service.ctx.pool.query(
        "select jsonb_path_query(run_spec, 'strict $.**.gated.strict') as strict from sandboxes where id = $1",
        [body.id],
      );
      expect(rows).toEqual([{ strict }]);
    });
  }
}
