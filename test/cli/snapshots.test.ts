import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { expectRefused, run, runJson } from '../support/cli.js';
import type { Client } from '../support/client.js';
import { smallRequest } from '../support/sandbox-requests.js';
import { startTestService, type TestService } from '../support/service.js';
import { imageIn } from '../support/snapshot-archives.js';

let service: TestService;
let client: Client;
let env: Record<string, string>;
let folder: string;
beforeAll(async () => {
  service = await startTestService();
  client = await service.newOrg();
  env = { SANDKEEP_URL: `${service.url}/`, SANDKEEP_API_KEY: client.key };
  folder = mkdtempSync(join(tmpdir(), 'sandkeep-snapshots-'));
  await client.post('/v1/sandboxes', smallRequest('source'), { start: true, wait_for: 'running' });
});
afterAll(async () => {
  await service.close();
  rmSync(folder, { recursive: true, force: true });
});

const snapshots = (...args: string[]) => run(['snapshots', ...args], { env });
const snapshotsJson = (...args: string[]) => runJson(['snapshots', ...args], { env });

describe('sandkeep snapshots', () => {
  test('makes, lists, shows, deletes and restores a snapshot', async () => {
    expect((await snapshots('list')).out).toBe('no snapshots\n');
    const made = await snapshotsJson('create', 'first', '--sandbox', 'source', '--label', 'team=ml');
    expect(made).toMatchObject({ name: 'first', status: 'ready', labels: { team: 'ml' } });
    expectRefused(await snapshots('create', 'first', '--sandbox', 'source'), 'already exists');
    const again = await snapshotsJson('create', 'first', '--sandbox', 'source', '--force', '--integrity');
    expect(again.manifest.state.upper.integrity).toMatchObject({ algorithm: 'sha256' });
    const shown = await snapshots('show', 'first');
    expect(shown.out).toMatch(/^SNAPSHOT +NAME +STATUS +SIZE +SANDBOX/);
    expect(shown.out).toContain(again.id);
    const ids = async (...args: string[]) =>
      (await snapshotsJson('list', ...args)).map(({ id }: { id: string }) => id);
    expect(await ids()).toEqual([again.id]);
    expect(await ids('--label', 'team=ml')).toEqual([]);
    expect(await ids('--deleted', '--label', 'team=ml')).toEqual([made.id]);
    expect((await snapshots('delete', 'first')).out).toContain('is scheduled for deletion');
    expectRefused(await snapshots('show', 'first'), 'no such snapshot');
    expect((await snapshotsJson('restore', again.id)).status).toBe('ready');
    expectRefused(await snapshots('create', 'x', '--sandbox', 'nobody'), 'not found');
  });

  test('exports to a file, which appears whole, and imports it', async () => {
    const file = join(folder, 'first.tar');
    const { digest, bytes } = await snapshotsJson('export', 'first', file);
    const archive = readFileSync(file);
    expect(archive.length).toBe(bytes);
    expect((await imageIn(archive)).digest).toBe(digest);
    expectRefused(await snapshots('export', 'first', file), 'exists');
    expect((await snapshots('export', 'first', file, '--force')).out).toContain(digest);
    const { out } = await snapshots('export', 'first', '-');
    expect(out).toContain('oci-layout');
    const imported = await snapshotsJson('import', file, '--name', 'copy', '--label', 'from=file');
    expect(imported).toMatchObject({ name: 'copy', sandbox_id: null, labels: { from: 'file' } });
    const piped = await runJson(['snapshots', 'import', '-', '--name', 'piped'], {
      env,
      input: archive.toString('latin1'),
    });
    expect(piped.digest).toMatch(/^sha256:/);
    expectRefused(await snapshots('import', file, '--name', 'copy'), 'already exists');
    expectRefused(await snapshots('import', join(folder, 'none'), '--name', 'x'), 'cannot read the archive');
    writeFileSync(join(folder, 'wrong'), 'no archive');
    expectRefused(await snapshots('import', join(folder, 'wrong'), '--name', 'x'), 'cannot be imported');
  });

  test('keeps no file of an answer that breaks off or is damaged', async () => {
    const archive = readFileSync(join(folder, 'first.tar'));
    const damaged = Buffer.from(archive);
    damaged[damaged.length - 1_500] = 1;
    const file = join(folder, 'partial.tar');
    for (const [body, reason] of [
      [archive.subarray(0, 2_000), 'before the archive was complete'],
      [damaged, 'is damaged'],
    ] as const) {
      const server = createServer((_, answer) => {
        answer.writeHead(200, { 'content-length': archive.length });
        if (body.length === archive.length) answer.end(body);
        else answer.write(body, () => answer.destroy());
      }).listen(0, '127.0.0.1');
      await once(server, 'listening');
      const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
      expectRefused(await run(['snapshots', 'export', 'first', file, '--url', url], { env }), reason);
      server.close();
    }
    expect(existsSync(file)).toBe(false);
    expect(readdirSync(folder).filter((name) => name.startsWith('partial'))).toEqual([]);
  });
});
