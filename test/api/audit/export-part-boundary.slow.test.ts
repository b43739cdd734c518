import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { v7 as uuidv7 } from 'uuid';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { sealEvents } from '../../../src/audit/log/seal.js';
import { run } from '../../support/cli.js';
import { wholeLog } from '../../support/event-log.js';
import { startTestService, type TestService } from '../../support/service.js';

/** This service seals only on request. */
let service: TestService;
let folder: string;
beforeAll(async () => {
  service = await startTestService({ worker: false });
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-parts-'));
});
afterAll(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

test('verification names an event inserted at the start of a part of an exported log', async () => {
  const { pool } = service.ctx;
  const client = await service.newOrg();
  const seal = () => sealEvents(service.ctx, new AbortController().signal);
  const exported = async (name: string, query: Record<string, string>) => {
    const file = join(folder, name);
    writeFileSync(file, (await client.request('GET', '/v1/events/export', { query })).text);
    return file;
  };
  await seal();
  const end = (await wholeLog(pool, client.org.id)).length;
  const id = uuidv7();
  await pool.query(
    `insert into events (org_id, id, occurred_at, category, event_type, actor, payload, actor_kind, actor_id)
     select org_id, $2, occurred_at, category, event_type, actor, payload, actor_kind, actor_id
     from events where org_id = $1 order by occurred_at limit 1`,
    [client.org.id, id],
  );
  const first = await exported('first', {});
  await seal();
  const rest = await exported('rest', { after_seq: String(end) });
  const words = ['events', 'verify', '--data-dir', service.directory, '--file'];
  expect((await run([...words, first])).code).toBe(0);
  for (const files of [[first, '--file', rest], [rest]]) {
    const { code, out } = await run([...words, ...files]);
    const named = `${rest}: TAMPERED WITH: entry ${end + 1} (event ${id} of `;
    expect({ code, out }).toMatchObject({ code: 1, out: expect.stringContaining(named) });
  }
});
