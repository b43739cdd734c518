import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, inject, test } from 'vitest';
import { migrate } from '../../src/db/migrate.js';
import { VERSION } from '../../src/lib/version.js';
import { makeClient } from '../support/client.js';
import { cloneTemplate } from '../support/database.js';
import { withOlderDatabase } from '../support/older-database.js';
import { operations } from '../support/openapi.js';
import { OPERATIONS } from '../support/operation-requests.js';
import { untilStatus } from '../support/polling.js';
import { launch, ready, stop, type Served } from '../support/processes.js';
import {
  copyDataDirectory,
  readRelease,
  releases,
  rowsOf,
  writeRelease,
} from '../support/release-fixture.js';
import { startTestService } from '../support/service.js';

if (process.env['SANDKEEP_WRITE_RELEASE'] === VERSION) {
  test(`write the data of release ${VERSION}`, async () => {
    const service = await startTestService();
    try {
      await writeRelease(VERSION, service);
      expect(releases()).toContain(VERSION);
    } finally {
      await service.close();
    }
  });
}

test('the present version has its data here', () => {
  // RELEASING.md: the data of a version is written once, before its release.
  expect(releases()).toContain(VERSION);
});

/** Operations that change what others need, in their order at the end of the walk. */
const LAST = [
  'update_sandbox',
  'delete_sandbox',
  'delete_by_name',
  'delete_volume',
  'restore_volume',
  'delete_webhook',
  'rotate_key',
  'revoke_key',
];
/** They find a sandbox that the walk has deleted, or a file that no release has. */
const ABSENT = new Set([
  'update_member',
  'remove_member',
  'revoke_invitation',
  'revoke_token',
  'delete_by_name',
  'copy_volume_file',
  'rename_volume_file',
  'end_sandbox_session',
  'end_sandbox_session_by_name',
  'get_sandbox_preview',
  'revoke_sandbox_preview',
  'get_pool',
  'delete_pool',
  'get_registry_credential',
  'update_registry_credential',
  'delete_registry_credential',
  'test_registry_credential',
  'get_budget',
  'update_budget',
  'delete_budget',
  'get_snapshot',
  'get_snapshot_by_name',
  'get_snapshot_operation',
  'get_fork_operation',
  'export_snapshot',
  'export_snapshot_by_name',
  'restore_snapshot',
  'delete_snapshot',
  'delete_snapshot_by_name',
  'get_fork_operation',
  'get_template',
  'follow_template_log',
  'delete_template',
]);
const ORDER = ['GET', 'POST', 'PUT', 'PATCH', 'DELETE'];

describe.each(releases())('the data of release %s', (version) => {
  test('starts with this version, and serves every operation', async () => {
    const release = readRelease(version);
    const dataDir = mkdtempSync(join(tmpdir(), 'sandkeep-release-'));
    copyDataDirectory(version, dataDir);
    await withOlderDatabase(release.migrations, async (address, pool) => {
      await pool.query(rowsOf(version));
      if (!('url' in address)) throw new Error('an older database has a URL');
      const args = ['--json', '--port', '0', '--runtime', 'simulated', '--log-level', 'warn'];
      const at = ['--data-dir', dataDir, '--database-url', address.url];
      const service: Served = await ready(launch(['serve', ...args, ...at]), dataDir);
      const client = makeClient(service.url, release);
      for (const [path, before] of Object.entries(release.answers)) {
        const [bare, query] = path.split('?');
        const { body } = await client.request('GET', bare!, query ? { query } : {});
        expect(body, path).toMatchObject(before as object);
      }
      const { sandbox } = release.resources;
      await client.post(`/v1/sandboxes/${sandbox.id}/start`, {});
      await untilStatus(client, sandbox.id, 'running');

      const rank = (method: string, id: string) =>
        LAST.includes(id) ? ORDER.length + LAST.indexOf(id) : ORDER.indexOf(method);
      const walk = operations
        .map(({ method, operation }) => ({ method, id: operation.operationId }))
        .toSorted((a, b) => rank(a.method, a.id) - rank(b.method, b.id));
      const failed: string[] = [];
      for (const { method, id } of walk) {
        const { path, absent: _, ...request } = OPERATIONS[id]!({ client, ...release.resources });
        const { status, text } = await client.request(method, path, request);
        // 501: the simulated runtime runs no commands. A key makes no personal token.
        const fine = status < 400 || [400, 409, 422, 426, 501].includes(status);
        const refused =
          !fine && !(status === 404 && ABSENT.has(id)) && !(status === 403 && id === 'create_token');
        if (refused) failed.push(`${id}: ${status} ${text}`);
      }
      expect(failed).toEqual([]);

      const verify = launch(['events', 'verify', '--org', release.org.slug, ...at]);
      expect([(await verify.exited).code, verify.err()]).toEqual([0, '']);
      expect(await stop(service)).toBe(0);
    });
    rmSync(dataDir, { recursive: true, force: true });
  });
});

test('a program that is older than the database refuses it, and says how to go on', async () => {
  const { address, drop } = await cloneTemplate(inject('server'));
  const dataDir = mkdtempSync(join(tmpdir(), 'sandkeep-release-'));
  if (!('url' in address)) throw new Error('a clone has a URL');
  const { connectAlone } = await import('../../src/db/pool.js');
  const client = await connectAlone(address);
  await client.query("insert into schema_migrations values (9999, '9999_of_a_later_release.sql', 'x')");
  await client.end();
  const at = ['--data-dir', dataDir, '--database-url', address.url];
  const started = launch(['serve', '--json', '--port', '0', '--runtime', 'simulated', ...at]);
  const refusal =
    /^sandkeep: the database was migrated by a newer Sandkeep \(to 9999_of_a_later_release\.sql\).*install that release or a later one, or restore the backup from before the upgrade\n$/;
  expect([(await started.exited).code, started.err()]).toEqual([1, expect.stringMatching(refusal)]);
  await expect(migrate(address)).rejects.toThrow(/newer Sandkeep/);
  await drop();
  rmSync(dataDir, { recursive: true, force: true });
});
