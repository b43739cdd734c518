import { once } from 'node:events';
import { request, type ClientRequest } from 'node:http';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { UPLOAD_TIMEOUT_MS } from '../../../src/http/server.js';
import { addMillis } from '../../../src/lib/instant.js';
import { newId } from '../../../src/lib/uuid.js';
import { insertPiece, readPiece } from '../../../src/templates/context/queries.js';
import { UPLOADS_AT_ONCE } from '../../../src/templates/routes.js';
import type { Client } from '../../support/client.js';
import { until } from '../../support/polling.js';
import { startTestService, type TestService } from '../../support/service.js';
import { archiveOf, build } from '../../support/templates.js';

let service: TestService;
beforeAll(async () => {
  service = await startTestService({ settings: { fileIdleMs: 100, filePatienceMs: 60_000 } });
});
afterAll(() => service.close());

/** An upload of more than one stored piece that does not continue. */
function beginUpload({ url, key }: Client, archive: string): ClientRequest {
  const headers = { authorization: `Bearer ${key}`, 'content-length': 10 * archive.length };
  const upload = request(`${url}/v1/templates?tag=idle:1`, { method: 'POST', headers });
  upload.write(archive);
  return upload;
}

/** The builds of which the store has a part of the context. */
async function storedOf({ org }: Client): Promise<number> {
  const { rows } = await service.ctx.pool.query<{ builds: number }>(
    'select count(distinct template_id)::int as builds from template_contexts where org_id = $1',
    [org.id],
  );
  return rows[0]!.builds;
}

test('an upload that stands still loses its slot to one that waits, and leaves nothing', async () => {
  const client = await service.newOrg();
  const archive = await archiveOf({ Dockerfile: 'FROM busybox\n', large: 'x'.repeat(600_000) });
  const uploads = Array.from({ length: UPLOADS_AT_ONCE.each }, () => beginUpload(client, archive));
  const ended = uploads.map(async (upload) =>
    once(upload, 'response').then(
      () => 'answered',
      () => 'cut off',
    ),
  );
  await until(
    async () => storedOf(client),
    (builds) => builds === UPLOADS_AT_ONCE.each,
  );
  expect((await build(client, 'moves:1', { Dockerfile: 'FROM busybox\n' }))['status']).toBe('succeeded');
  expect(await Promise.race(ended)).toBe('cut off');
  for (const upload of uploads) upload.destroy();
  await Promise.all(ended);
  await until(
    async () => storedOf(client),
    (builds) => builds === 0,
  );
});

test('the pieces of an upload stay for longer than the longest upload', async () => {
  const client = await service.newOrg();
  const { pool, now } = service.ctx;
  const receive = async (agoMs: number) => {
    const key = { orgId: client.org.id, templateId: newId() };
    await insertPiece(pool, key, 0, Buffer.from('x'), addMillis(now(), -agoMs));
    return key;
  };
  const [kept, left] = [await receive(1.5 * UPLOAD_TIMEOUT_MS), await receive(2.5 * UPLOAD_TIMEOUT_MS)];
  // Its end makes the worker collect.
  await build(client, 'any:1', { Dockerfile: 'FROM busybox\n' });
  await until(
    async () => readPiece(pool, left, 0),
    (piece) => piece === undefined,
    30_000,
  );
  expect(await readPiece(pool, kept, 0)).toEqual(Buffer.from('x'));
});
